"""Measure "steps/s" from the first reported step to the last. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

# As often as a progress line is redrawn.
SAMPLE_PERIOD_S = 0.05
# A sample costs the chief and a server a millisecond; a report of many steps can wait longer.
LONGEST_SAMPLE_PERIOD_S = 0.2
# A report takes a millisecond to come, and some more on a busy machine: between two that are closer
# together that is most of what is measured, and the rate may be many times too high.
MIN_MEASURED_S = 0.02


class _Report(NamedTuple):
    steps: int = 0
    now_s: float = 0.0
    by_worker: tuple[int, ...] = ()


class StepRate:
    """Measures the steps of all workers per second, from the first report with steps to the latest.

    What comes before the first step (starting, tracing) does not count, as in Keras's own time of a
    step, and neither does what comes after the last (validation). None until two reports differ
    that are `MIN_MEASURED_S` apart.

    Args:
        began_s: when the epoch began.

    Example:

    >>> rate = StepRate()
    >>> rate.count(0, now_s=10.0)
    >>> rate.count(50, now_s=30.0, by_worker=[25, 25])
    >>> rate.per_second is None
    True
    >>> rate.count(150, now_s=31.0, by_worker=[65, 85])
    >>> rate.count(150, now_s=40.0, by_worker=[65, 85])
    >>> rate.per_second, rate.per_second_by_worker, rate.expected_s(20)
    (100.0, (40.0, 60.0), 0.2)
    """

    def __init__(self, began_s: float = -math.inf) -> None:
        self.began_s = began_s
        self._first: _Report | None = None
        self._latest = _Report()

    def count(self, steps: int, *, now_s: float, by_worker: Sequence[int] = ()) -> None:
        """Record how many steps of the epoch are done.

        Args:
            steps: since the epoch began.
            now_s: when.
            by_worker: steps of each, since any moment.
        """
        if steps > self._latest.steps:
            self._latest = _Report(steps, now_s, tuple(by_worker))
            self._first = self._first or self._latest

    @property
    def steps(self) -> int:
        """The number of steps in the latest report, since the epoch began."""
        return self._latest.steps

    @property
    def per_second(self) -> float | None:
        """The steps per second of all workers; None if they cannot be measured."""
        first, seconds = self._first, self._measured_s
        if first is None or seconds is None:
            return None
        return (self._latest.steps - first.steps) / seconds

    @property
    def _measured_s(self) -> float | None:
        """The time between the first report and the latest; None if it is too short for a rate."""
        seconds = 0.0 if self._first is None else self._latest.now_s - self._first.now_s
        return seconds if seconds >= MIN_MEASURED_S else None

    def expected_s(self, steps: int) -> float | None:
        """Return how long a number of steps takes; None where that cannot be told."""
        rate = self.per_second
        return steps / rate if rate else None

    def period_s(self, remaining_steps: int) -> float:
        """Return how long to wait for a report: until the remaining steps should be done."""
        expected_s = self.expected_s(remaining_steps) or 0.0
        return min(max(SAMPLE_PERIOD_S, expected_s), LONGEST_SAMPLE_PERIOD_S)

    @property
    def per_second_by_worker(self) -> tuple[float, ...] | None:
        """The rate of each worker; None where it cannot be measured."""
        first, seconds = self._first, self._measured_s
        if first is None or seconds is None:
            return None
        pairs = zip(first.by_worker, self._latest.by_worker, strict=True)
        return tuple((now - before) / seconds for before, now in pairs)
