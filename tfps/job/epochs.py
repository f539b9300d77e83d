"""What a training loop measured, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Epoch:
    """What one epoch measured.

    Args:
        epoch: its number, from 1.
        steps: training steps of all workers.
        seconds: of the whole epoch, validation included.
        steps_per_s: from the first step that was seen to the last; None where that is one moment.
        metrics: after the epoch, by name; those of validation begin with ``val_``.
    """

    epoch: int
    steps: int
    seconds: float
    steps_per_s: float | None
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrainingRecord:
    """What a training loop measured.

    Args:
        epochs: one after the other.
    """

    epochs: Sequence[Epoch]

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return sum(epoch.steps for epoch in self.epochs)

    @property
    def step_seconds(self) -> float | None:
        """What all steps take at the rate of their epoch, without start and validation.

        Example:

        >>> slow, fast = Epoch(1, 100, 20.0, 50.0, {}), Epoch(2, 100, 1.5, 100.0, {})
        >>> TrainingRecord([slow, fast]).step_seconds
        3.0
        """
        seconds = [e.steps / e.steps_per_s if e.steps_per_s else None for e in self.epochs]
        measured = [each for each in seconds if each is not None]
        return sum(measured) if measured and len(measured) == len(seconds) else None

    @property
    def steps_per_s(self) -> float | None:
        """Of all epochs: between the slowest one's and the fastest one's."""
        return self.steps / self.step_seconds if self.step_seconds else None


def series(history: Sequence[Mapping[str, Any]], metric: str) -> dict[int, float]:
    """A metric by epoch, of the epochs that have it.

    Args:
        history: epochs, as `result.json` has them.
        metric: its name.

    Example:

    >>> series([{"epoch": 1, "metrics": {"loss": 0.5}}], "loss")
    {1: 0.5}
    """
    return {
        epoch["epoch"]: epoch["metrics"][metric] for epoch in history if metric in epoch["metrics"]
    }
