"""Decides when a job has ended, for a task that gets no message; no TensorFlow, no sockets."""

from __future__ import annotations

# Workers and servers end half a second after the chief's message. A short failure of the network
# must not look the same.
CONFIRMED_AFTER_S = 5.0


class JobWatch:
    """Concludes from the reachable tasks that a job has ended.

    When a chief ends, workers and parameter servers end as well. So the job has ended if some task
    was reachable before, and none is now. If only the chief is unreachable, a scheduler may restart
    it, so the job counts as ended after the same time for which workers and servers wait.

    Args:
        now_s: the time of a monotonic clock.
        chief_timeout_s: the longest time for which the chief may be unreachable.
        variable: the environment variable that sets this time, for messages.

    Example:

    >>> watch = JobWatch(now_s=0.0, chief_timeout_s=600.0, variable="TIMEOUT_S")
    >>> watch.observe(now_s=1.0, chief=True, others=True)
    >>> watch.observe(now_s=9.0, chief=False, others=False)
    >>> watch.observe(now_s=14.0, chief=False, others=False)
    >>> watch.end
    'all tasks of the cluster have ended'
    """

    def __init__(self, *, now_s: float, chief_timeout_s: float, variable: str) -> None:
        self.end: str | None = None
        self._chief_timeout_s = chief_timeout_s
        self._variable = variable
        self._was_seen = False
        self._chief_gone_at_s: float | None = now_s
        self._all_gone_at_s: float | None = None

    def observe(self, *, now_s: float, chief: bool, others: bool) -> None:
        """Record which tasks are reachable.

        Args:
            now_s: the time of a monotonic clock.
            chief: whether the chief is reachable.
            others: whether any worker or parameter server is reachable.
        """
        self._was_seen |= chief or others
        self._chief_gone_at_s = _since(self._chief_gone_at_s, now_s, gone=not chief)
        all_gone = self._was_seen and not chief and not others
        self._all_gone_at_s = _since(self._all_gone_at_s, now_s, gone=all_gone)
        confirmed_s = min(CONFIRMED_AFTER_S, self._chief_timeout_s)
        if self.end is not None:
            return
        if self._all_gone_at_s is not None and now_s - self._all_gone_at_s >= confirmed_s:
            self.end = "all tasks of the cluster have ended"
        elif (
            self._chief_gone_at_s is not None
            and now_s - self._chief_gone_at_s >= self._chief_timeout_s
        ):
            self.end = (
                f"the chief did not respond for {self._chief_timeout_s:g} s ({self._variable})"
            )

    def record_checkpoint(self, *, now_s: float) -> None:
        """Record a new checkpoint, which shows that the job still trains."""
        if self._chief_gone_at_s is not None:
            self._chief_gone_at_s = now_s


def _since(before_s: float | None, now_s: float, *, gone: bool) -> float | None:
    if not gone:
        return None
    return now_s if before_s is None else before_s
