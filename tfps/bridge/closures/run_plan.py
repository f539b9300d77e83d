"""Decides how many waiting closures run as one, and when that pays. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

LEAST_STEPS = 2  # a run of one step is a closure


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """The limits of runs: closures of one function that a worker runs as one.

    Args:
        most_steps: the most closures of a run; 1: each runs by itself.
        longest_s: a run ends after the step in which this time has passed, so that little is lost
            with its worker, and others wait little for its results.
        most_bytes: the most bytes that a worker keeps of the outputs of a run.
        fewest_closures: the closures of a function that have run before it is traced for runs.
        fewest_waiting: the closures for each worker that wait then: the trace takes a while.
        longest_step_s: longer steps are not worth a trace, since the chief has time enough.
    """

    most_steps: int = 32
    longest_s: float = 0.2
    most_bytes: int = 4 << 20
    fewest_closures: int = 8
    fewest_waiting: int = 8
    longest_step_s: float = 0.03


ONE_BY_ONE = RunLimits(most_steps=1)


def limit_steps(limits: RunLimits, *, step_bytes: int, workers: int, cells: int) -> int:
    """Return the most steps of a run of a function.

    Each step keeps its number until it has ended. Half of the window of numbers is for the runs of
    all workers, the other half for closures that hanging workers still hold.

    Args:
        limits: the limits of all runs.
        step_bytes: the bytes that a worker keeps of a step.
        workers: the workers of the cluster.
        cells: the numbers that the window has room for.

    Example:

    >>> [limit_steps(RunLimits(), step_bytes=n, workers=2, cells=4096) for n in (64, 1 << 20)]
    [32, 4]
    >>> limit_steps(RunLimits(), step_bytes=64, workers=256, cells=4096)
    8
    """
    return min(limits.most_steps, limits.most_bytes // step_bytes, cells // (2 * workers))


class StepTimes:
    """How often closures of a function have run, and how long their steps took lately.

    Example:

    >>> times = StepTimes()
    >>> times.record(steps=1, seconds=2.0)
    >>> times.record(steps=4, seconds=0.04)
    >>> times.record(steps=1, seconds=0.01)
    >>> times.closures, times.step_s
    (3, 0.01)
    """

    def __init__(self) -> None:
        self.closures = 0
        self._recent: deque[float] = deque(maxlen=8)  # the first one on a worker takes long

    def record(self, *, steps: int, seconds: float) -> None:
        """Record the duration of a closure, or of a run of several steps."""
        if steps:
            self.closures += 1
            self._recent.append(seconds / steps)

    @property
    def step_s(self) -> float:
        """The median duration of a step; 0 before the first one."""
        return statistics.median(self._recent) if self._recent else 0.0


def pays(limits: RunLimits, times: StepTimes, *, waiting: int, workers: int) -> bool:
    """Return whether a function is to be traced for runs now.

    Example:

    >>> times = StepTimes()
    >>> for _ in range(8):
    ...     times.record(steps=1, seconds=0.01)
    >>> [pays(RunLimits(), times, waiting=n, workers=2) for n in (15, 16)]
    [False, True]
    >>> pays(ONE_BY_ONE, times, waiting=16, workers=2)
    False
    """
    return (
        limits.most_steps >= LEAST_STEPS
        and times.closures >= limits.fewest_closures
        and waiting >= limits.fewest_waiting * workers
        and times.step_s <= limits.longest_step_s
    )


def count_steps(
    most_steps: int, limits: RunLimits, *, waiting: int, workers: int, step_s: float
) -> int:
    """Return how many closures a worker takes at once from the queue.

    At most its share, so that no other worker is without work, and no more than it probably ends
    in time.

    Args:
        most_steps: the most for this function.
        limits: the limits of all functions.
        waiting: the closures in the queue.
        workers: the workers that share them.
        step_s: the duration of a step.

    Example:

    >>> limits = RunLimits()
    >>> [count_steps(32, limits, waiting=n, workers=2, step_s=0.001) for n in (1, 9, 100)]
    [1, 4, 32]
    >>> count_steps(32, limits, waiting=100, workers=2, step_s=0.05)
    4
    """
    in_time = limits.longest_s / step_s if step_s else most_steps
    return max(1, int(min(most_steps, waiting // max(1, workers), in_time)))
