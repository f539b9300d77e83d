"""How many entries a table needs so that it does not move. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TableRoom:
    """What is known of a vector that doubles when it is full.

    Attributes:
        filled: entries that were added to give it room; it has them for certain.
        used: entries beside them, at most.

    Example:

    >>> room = TableRoom()
    >>> room.missing(31)
    33
    >>> room.filled += 33
    >>> room.use(31)
    >>> room.missing(0), room.missing(1)
    (0, 32)
    """

    filled: int = 0
    used: int = 0

    def missing(self, calls: int) -> int:
        """How many entries to add so that so many further ones leave the vector where it is.

        Half of it and one entry are filled: however few are used, it has doubled then, and however
        many are used up to that number, it does not double again.
        """
        if self.filled + self.used + calls <= capacity(self.filled):
            return 0
        filled = 2
        while filled <= self.filled or filled + self.used + calls > capacity(filled):
            filled = 2 * filled - 1  # 2, 3, 5, 9, 17, 33 ...
        return filled - self.filled

    def use(self, entries: int) -> None:
        """So many entries of others are added, at most."""
        self.used += entries


def capacity(entries: int) -> int:
    """For how many entries a vector has memory that has so many.

    >>> [capacity(entries) for entries in (0, 1, 2, 3, 33, 64, 65)]
    [0, 1, 2, 4, 64, 64, 128]
    """
    return 1 << (entries - 1).bit_length() if entries else 0
