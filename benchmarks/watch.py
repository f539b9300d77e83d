"""Measure a training with a callback, which tests the accuracy and ends the training in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from benchmarks.usage import EpochClock


@dataclass(eq=False, kw_only=True)
class Watch(keras.callbacks.Callback):
    """Measures one epoch of a strategy with ``batch_callbacks="sampled"``.

    Workers go on while it looks, and a pull does not stop them either.
    """

    strategy: Any
    clock: EpochClock
    accuracy: Callable[[], float]  # of the parameters at this moment
    train_s: float  # after which the epoch ends, if it has not by itself
    look_every_s: float  # between two looks at the accuracy; the last one is at the end
    goal: float = math.inf  # an accuracy that ends the epoch too
    least_s: float = 0.0  # but not before this, so that there is something to measure

    def __post_init__(self) -> None:
        super().__init__()
        self._begun_s = self._next_measurement_s = 0.0  # the first look is at once
        self.before: Any = None
        self.after: Any = None
        self.curve: list[tuple[float, float]] = []  # seconds, accuracy

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Start the clock at the first step, test the accuracy when due, and stop at the end."""
        if self.before is None:
            # Not with the epoch: the workers' pipelines are only being made then.
            self.before = self.strategy.stats()
            self.clock.begin()
            self._begun_s = time.perf_counter()
        passed_s = time.perf_counter() - self._begun_s
        if self.after is not None or passed_s < min(self._next_measurement_s, self.train_s):
            return
        if passed_s >= self.train_s:
            self._end()
        self._measure_accuracy(passed_s)
        is_reached = any(accuracy >= self.goal for _, accuracy in self.curve)
        if self.after is None and is_reached and passed_s >= self.least_s:
            self._end()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the measurement if the steps end before the time."""
        if self.before is not None and self.after is None:
            passed_s = time.perf_counter() - self._begun_s
            self._end()
            self._measure_accuracy(passed_s)

    def _measure_accuracy(self, passed_s: float) -> None:
        self.curve.append((passed_s, self.accuracy()))
        self._next_measurement_s += self.look_every_s

    def _end(self) -> None:
        self.after = self.strategy.stats()
        self.clock.end(sum(self.after.worker_steps) - sum(self.before.worker_steps))
        self.model.stop_training = True
