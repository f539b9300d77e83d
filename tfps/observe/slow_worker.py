"""Finds a worker that is slower than the others, and says what to do. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tfps.units import format_seconds

SLOW_RATIO = 2.0
# Steps of a few milliseconds differ by as much where tasks share processors.
LEAST_DIFFERENCE_S = 0.02


def find_slow_worker(step_seconds: Sequence[float | None]) -> tuple[int, float] | None:
    """Return the slowest worker, and how many times the others' median its own step takes.

    Args:
        step_seconds: each worker's own part of a step; None where it is not known.

    Returns:
        None if no worker takes more than `SLOW_RATIO` times the median of the others.

    Example:

    >>> find_slow_worker([2.0, 68.0, 2.0])
    (1, 34.0)
    >>> find_slow_worker([2.0, 3.9, None]) is None
    True
    """
    known = [(seconds, worker) for worker, seconds in enumerate(step_seconds) if seconds]
    if len(known) < 2:
        return None
    slowest, worker = max(known)
    median = statistics.median(seconds for seconds, other in known if other != worker)
    is_slow = slowest > SLOW_RATIO * median and slowest - median > LEAST_DIFFERENCE_S
    return (worker, slowest / median) if is_slow else None


def describe_slow_worker(step_seconds: Sequence[float | None], *, mode: str) -> str:
    """Return a sentence that names the slow worker and the remedy; empty if there is none.

    Args:
        step_seconds: each worker's own part of a step; None where it is not known.
        mode: the consistency mode, as text.

    Example:

    >>> describe_slow_worker([2.0, 68.0], mode="Asynchronous()")
    'worker 1 is slow, 68 s per step, 34.0x the others: check its CPU and its input'
    """
    found = find_slow_worker(step_seconds)
    if found is None:
        return ""
    worker, ratio = found
    remedy = "check its CPU and its input"
    if "backup_workers=0" in mode:
        remedy += ", or use Synchronous(backup_workers=1)"
    elif "bound_steps" in mode:
        remedy += ", or use Asynchronous(), in which no worker waits"
    seconds = format_seconds(step_seconds[worker] or 0.0)
    return f"worker {worker} is slow, {seconds} per step, {ratio:.1f}x the others: {remedy}"
