"""How many lives each worker has had. Pure."""

from __future__ import annotations

from collections import Counter


class Lives:
    """Counts the workers that work again after they were lost.

    A worker can be found lost in several ways, one after the other, before it works again: that is
    one life that has ended.

    Example:

    >>> lives = Lives()
    >>> lives.works(1)
    >>> lives.is_lost(1)
    >>> lives.is_lost(1)
    >>> lives.works(1)
    >>> lives.works(1)
    >>> lives.of(workers=2)
    (1, 2)
    >>> lives.is_lost(0)
    >>> lives.ended
    2
    """

    def __init__(self) -> None:
        self._lost: set[int] = set()
        self._returns: Counter[int] = Counter()

    def is_lost(self, worker: int) -> None:
        """It has died, or hangs."""
        self._lost.add(worker)

    def works(self, worker: int) -> None:
        """It takes something to do."""
        if worker in self._lost:
            self._lost.remove(worker)
            self._returns[worker] += 1

    @property
    def ended(self) -> int:
        """How many lives of workers have ended, whether they work again or not."""
        return len(self._lost) + self._returns.total()

    def of(self, *, workers: int) -> tuple[int, ...]:
        """Of each worker; 1 of one that was never lost."""
        return tuple(1 + self._returns[worker] for worker in range(workers))
