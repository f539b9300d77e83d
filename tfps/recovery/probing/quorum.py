"""Decide when too few workers have replied for too long, which ends a job. Pure."""

from __future__ import annotations

from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.units import counted


class Quorum:
    """Decides whether a job ends because it has too few workers.

    Args:
        workers: the job's number of workers.
        fault_tolerance: how many must reply, and how long the job waits for them.

    Example:

    >>> quorum = Quorum(workers=2, fault_tolerance=FaultTolerance(no_worker_timeout_s=60))
    >>> [quorum.end_reason(responding=0, now_s=now_s) for now_s in (0.0, 59.0)]
    ['', '']
    >>> quorum.end_reason(responding=0, now_s=60.0)
    'none of 2 workers has responded for 60 s (no_worker_timeout_s)'
    >>> quorum.end_reason(responding=1, now_s=61.0)
    ''
    """

    def __init__(self, *, workers: int, fault_tolerance: FaultTolerance) -> None:
        self._workers, self._fault_tolerance = workers, fault_tolerance
        self._since_s: float | None = None  # since when too few reply

    def end_reason(self, *, responding: int, now_s: float, supervisor_reason: str = "") -> str:
        """Return why the job ends; an empty string while it goes on or waits.

        Args:
            responding: how many workers reply now.
            now_s: the time on the monotonic clock.
            supervisor_reason: why no other worker can return, if that is known.
        """
        if responding >= self._fault_tolerance.min_workers:
            self._since_s = None
            return ""
        self._since_s = now_s if self._since_s is None else self._since_s
        if supervisor_reason:
            return supervisor_reason
        timeout_s = self._fault_tolerance.no_worker_timeout_s
        if now_s - self._since_s < timeout_s:
            return ""
        workers = counted(self._workers, "worker")
        few = (
            f"{responding} of {workers} responded, fewer than "
            f"min_workers={self._fault_tolerance.min_workers}, for"
            if responding
            else f"none of {workers} has responded for"
        )
        return f"{few} {timeout_s:g} s (no_worker_timeout_s)"
