"""The times at which a log file gets a line about the running epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LineSchedule:
    """Spaces log lines: soon after the epoch's start, then fewer, at most 29 s apart by default.

    Steps are counted five times a second, so the longest pause leaves time for that.

    Args:
        first_s: until the first line.
        longest_s: between two lines at most.

    Example:

    >>> schedule = LineSchedule()
    >>> [schedule.pause_s(lines) for lines in range(4)]
    [10.0, 20.0, 29.0, 29.0]
    """

    first_s: float = 10.0
    longest_s: float = 29.0

    def pause_s(self, lines: int) -> float:
        """Return how long after the last line, or the epoch's start, the next one is due.

        Args:
            lines: of this epoch, so far.
        """
        # The cap of 30 keeps the power finite: 2.0 ** 1024 overflows.
        return min(self.longest_s, self.first_s * 2.0 ** min(lines, 30))
