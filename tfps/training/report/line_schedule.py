"""When a log file gets a line about an epoch that goes on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LineSchedule:
    """Soon after the epoch's begin, then more seldom, and never more than half a minute apart.

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
        """How long after the last line, or the epoch's begin, the next one is due.

        Args:
            lines: of this epoch, so far.
        """
        # A float of any number of lines: two to the power of a thousand is none.
        return min(self.longest_s, self.first_s * 2.0 ** min(lines, 30))
