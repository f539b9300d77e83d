"""Counts the lives of workers. Pure."""

from __future__ import annotations

from collections import Counter


class Lives:
    """Counts how often each worker returned to work after it was lost.

    Several checks may report the same worker as lost before it works again: that ends one life.

    Example:

    >>> lives = Lives()
    >>> lives.works(1)
    >>> lives.is_lost(1)
    >>> lives.is_lost(1)
    >>> lives.works(1)
    >>> lives.works(1)
    >>> lives.per_worker(workers=2)
    (1, 2)
    >>> lives.is_lost(0)
    >>> lives.ended
    2
    """

    def __init__(self) -> None:
        self._lost: set[int] = set()
        self._returns: Counter[int] = Counter()

    def is_lost(self, worker: int) -> None:
        """Note that a worker has died, or hangs."""
        self._lost.add(worker)

    def works(self, worker: int) -> None:
        """Note that a worker takes a closure."""
        if worker in self._lost:
            self._lost.remove(worker)
            self._returns[worker] += 1

    @property
    def ended(self) -> int:
        """The number of lives that have ended, whether the workers returned or not."""
        return len(self._lost) + self._returns.total()

    def per_worker(self, *, workers: int) -> tuple[int, ...]:
        """Return the number of lives of each worker; 1 for a worker that was never lost."""
        return tuple(1 + self._returns[worker] for worker in range(workers))
