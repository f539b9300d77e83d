"""When a job is over, for a task that nobody can tell; without TensorFlow or sockets."""

from __future__ import annotations

# Workers and servers end half a second after the chief has told them to; a network that fails for
# a moment must not look like that.
CONFIRMED_AFTER_S = 5.0


class JobWatch:
    """Concludes from who can be reached that a job is over.

    A chief that ends tells workers and parameter servers, which end as well: once some task was
    seen and then none can be reached, the job is over. When only the chief stays away, a scheduler
    may start it again, so its absence counts after the time that workers and servers wait, too.

    Args:
        now_s: the time on a clock that never goes back.
        chief_timeout_s: how long the chief may be away.
        variable: what the user sets that time with.

    Example:

    >>> watch = JobWatch(now_s=0.0, chief_timeout_s=600.0, variable="TIMEOUT_S")
    >>> watch.observe(now_s=1.0, chief=True, others=True)
    >>> watch.observe(now_s=9.0, chief=False, others=False)
    >>> watch.observe(now_s=14.0, chief=False, others=False)
    >>> watch.end
    'no task of the cluster is left'
    """

    def __init__(self, *, now_s: float, chief_timeout_s: float, variable: str) -> None:
        self.end: str | None = None
        self._chief_timeout_s = chief_timeout_s
        self._variable = variable
        self._was_seen = False
        self._chief_gone_at_s: float | None = now_s
        self._all_gone_at_s: float | None = None

    def observe(self, *, now_s: float, chief: bool, others: bool) -> None:
        """Take note of who can be reached.

        Args:
            now_s: the time on a clock that never goes back.
            chief: whether the chief can be.
            others: whether any worker or parameter server can be.
        """
        self._was_seen |= chief or others
        self._chief_gone_at_s = _since(self._chief_gone_at_s, now_s, gone=not chief)
        gone = self._was_seen and not chief and not others
        self._all_gone_at_s = _since(self._all_gone_at_s, now_s, gone=gone)
        confirmed_s = min(CONFIRMED_AFTER_S, self._chief_timeout_s)
        if self.end is not None:
            return
        if self._all_gone_at_s is not None and now_s - self._all_gone_at_s >= confirmed_s:
            self.end = "no task of the cluster is left"
        elif (
            self._chief_gone_at_s is not None
            and now_s - self._chief_gone_at_s >= self._chief_timeout_s
        ):
            self.end = f"the chief was away for {self._chief_timeout_s:g} s ({self._variable})"

    def see_checkpoint(self, *, now_s: float) -> None:
        """A new checkpoint shows that somebody trains, reachable or not."""
        if self._chief_gone_at_s is not None:
            self._chief_gone_at_s = now_s


def _since(before_s: float | None, now_s: float, *, gone: bool) -> float | None:
    if not gone:
        return None
    return now_s if before_s is None else before_s
