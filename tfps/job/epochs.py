"""The measurements of a training loop, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Epoch:
    """The measurements of one epoch.

    Args:
        epoch: its number, from 1.
        steps: the number of training steps of all workers.
        seconds: the duration of the whole epoch, validation included.
        steps_per_s: the rate from the first observed step to the last; None if they are the same.
        metrics: the metrics after the epoch, by name; those of validation begin with ``val_``.
    """

    epoch: int
    steps: int
    seconds: float
    steps_per_s: float | None
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrainingRecord:
    """The measurements of a training loop.

    Args:
        epochs: the epochs in their order.
    """

    epochs: Sequence[Epoch]

    @property
    def steps(self) -> int:
        """The number of steps of all epochs."""
        return sum(epoch.steps for epoch in self.epochs)

    @property
    def step_seconds(self) -> float | None:
        """The duration of all steps at the rate of their epoch, without start and validation.

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
        """The mean rate of all epochs, weighted by their steps."""
        return self.steps / self.step_seconds if self.step_seconds else None


def get_metric_by_epoch(history: Sequence[Mapping[str, Any]], metric: str) -> dict[int, float]:
    """Return the values of a metric by epoch, for the epochs that have it.

    Args:
        history: the epochs, as in `result.json`.
        metric: the metric's name.

    Example:

    >>> get_metric_by_epoch([{"epoch": 1, "metrics": {"loss": 0.5}}], "loss")
    {1: 0.5}
    """
    return {
        epoch["epoch"]: epoch["metrics"][metric] for epoch in history if metric in epoch["metrics"]
    }
