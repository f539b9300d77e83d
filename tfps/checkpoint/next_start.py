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


SEARCHED: weakref.WeakSet[Checkpoints] = weakref.WeakSet()


def note_look(checkpoints: Checkpoints) -> None:
    """Note that the program has looked for a checkpoint, so its next start will look again."""
    SEARCHED.add(checkpoints)


def next_checkpoint() -> Path | None:
    """Return the checkpoint that the next start would find, or None."""
    for checkpoints in list(SEARCHED):
        if (latest := checkpoints.latest) is not None:
            return checkpoints.directory_of(latest.number)
    return None
