"""Counts the lives of workers. Pure."""

from __future__ import annotations

from collections import Counter


class LifeCounter:
    """Counts how often each worker returned to work after it was lost.

    Several checks may report the same worker as lost before it works again: that ends one life.

    Example:

    >>> lives = LifeCounter()
    >>> lives.record_work(1)
    >>> lives.record_loss(1)
    >>> lives.record_loss(1)
    >>> lives.record_work(1)
    >>> lives.record_work(1)
    >>> lives.count_lives(workers=2)
    (1, 2)
    >>> lives.record_loss(0)
    >>> lives.losses
    2
    """

    def __init__(self) -> None:
        self._lost: set[int] = set()
        self._returns: Counter[int] = Counter()

    def record_loss(self, worker: int) -> None:
        """Record that a worker has died, or hangs."""
        self._lost.add(worker)

    def record_work(self, worker: int) -> None:
        """Record that a worker takes a closure; the first one after a loss begins another life."""
        if worker in self._lost:
            self._lost.remove(worker)
            self._returns[worker] += 1

    @property
    def losses(self) -> int:
        """The number of losses of all workers, whether they returned or not."""
        return len(self._lost) + self._returns.total()

    def count_lives(self, *, workers: int) -> tuple[int, ...]:
        """Return the number of lives of each worker; 1 for a worker that was never lost."""
        return tuple(1 + self._returns[worker] for worker in range(workers))
