"""The pauses between attempts to repeat a failed save. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Counts the saves that have failed one after the other.

    Args:
        failures: the number of failures.
        not_before_s: the earliest time of the next attempt, on the caller's clock.

    Example:

    >>> attempts = Attempts().after_failure(now_s=100.0)
    >>> attempts.may_save(now_s=105.0), attempts.may_save(now_s=110.0)
    (False, True)
    """

    failures: int = 0
    not_before_s: float = 0.0

    @property
    def pause_s(self) -> float:
        """The time from the latest failure to the next attempt; it doubles with each failure."""
        doubled = FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 30)
        return min(doubled, LONGEST_PAUSE_S) if self.failures else 0.0

    def after_failure(self, *, now_s: float) -> Attempts:
        """Return the state after one more failure."""
        more = Attempts(failures=self.failures + 1)
        return Attempts(failures=more.failures, not_before_s=now_s + more.pause_s)

    def may_save(self, *, now_s: float) -> bool:
        """Return whether the pause is over."""
        return not self.failures or now_s >= self.not_before_s
