"""The checkpoint from which the next start of this program would continue."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Protocol

from tfps.checkpoint.manifest import Manifest


class Checkpoints(Protocol):
    """The checkpoints of a program."""

    @property
    def latest(self) -> Manifest | None:
        """The newest committed checkpoint, or None."""

    def directory_of(self, number: int) -> Path:
        """Return the folder of a checkpoint."""


SEARCHED_CHECKPOINTS: weakref.WeakSet[Checkpoints] = weakref.WeakSet()


def record_search(checkpoints: Checkpoints) -> None:
    """Record that the program has looked for a checkpoint, as its next start will."""
    SEARCHED_CHECKPOINTS.add(checkpoints)


def next_checkpoint() -> Path | None:
    """Return the checkpoint that the next start would find, or None."""
    for checkpoints in list(SEARCHED_CHECKPOINTS):
        if (latest := checkpoints.latest) is not None:
            return checkpoints.directory_of(latest.number)
    return None
