"""What the next start of this program would go on from: a checkpoint that it looks for."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Protocol

from tfps.checkpoint.manifest import Manifest


class Checkpoints(Protocol):
    """Where a program keeps its checkpoints."""

    @property
    def latest(self) -> Manifest | None:
        """The newest one that was committed, or None."""

    def directory_of(self, number: int) -> Path:
        """Return where a checkpoint is."""


_looked_in: weakref.WeakSet[Checkpoints] = weakref.WeakSet()


def note_look(checkpoints: Checkpoints) -> None:
    """The program has looked for a checkpoint to go on from, so its next start will look again."""
    _looked_in.add(checkpoints)


def next_checkpoint() -> Path | None:
    """Return the checkpoint that the next start would find; None where there is none."""
    for checkpoints in list(_looked_in):
        if (latest := checkpoints.latest) is not None:
            return checkpoints.directory_of(latest.number)
    return None
