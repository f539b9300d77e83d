"""Computes how many entries to add to a table so that it is not reallocated. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TableRoom:
    """The known size of a vector that doubles when it is full.

    Attributes:
        filled: the number of entries that were added to make room; they are certain.
        used: an upper bound of the number of other entries.

    Example:

    >>> room = TableRoom()
    >>> room.count_filler_entries(31)
    33
    >>> room.filled += 33
    >>> room.add_used(31)
    >>> room.count_filler_entries(0), room.count_filler_entries(1)
    (0, 32)
    """

    filled: int = 0
    used: int = 0

    def count_filler_entries(self, calls: int) -> int:
        """Return how many filler entries let the vector double now, not during the next `calls`.

        Half of the capacity plus one entry is filled. So the vector has doubled for certain,
        however few entries are used, and it does not double again while the others fit.
        """
        if self.filled + self.used + calls <= compute_capacity(self.filled):
            return 0
        filled = 2
        while filled <= self.filled or filled + self.used + calls > compute_capacity(filled):
            filled = 2 * filled - 1  # 2, 3, 5, 9, 17, 33 ...
        return filled - self.filled

    def add_used(self, entries: int) -> None:
        """Record that calls may have added entries, at most this number."""
        self.used += entries


def compute_capacity(entries: int) -> int:
    """Return the capacity of a vector that has this number of entries.

    >>> [compute_capacity(entries) for entries in (0, 1, 2, 3, 33, 64, 65)]
    [0, 1, 2, 4, 64, 64, 128]
    """
    return 1 << (entries - 1).bit_length() if entries else 0
