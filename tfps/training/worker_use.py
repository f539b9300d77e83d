"""Record whether the strategies of this process have used their workers. Pure."""

from __future__ import annotations

import weakref
from typing import Protocol

NO_STEP_ON_A_WORKER = (
    "no step ran on a worker. Workers run fit(), evaluate() and larger predict()s of models "
    "created and compiled inside `with strategy.scope():`, and the functions passed to "
    "schedule() of a ClusterCoordinator"
)


class Closable(Protocol):
    """The part of a strategy's runtime that tells whether the strategy is closed."""

    @property
    def closed(self) -> bool:
        """Whether the strategy no longer uses its cluster."""


class WorkerUse:
    """Records whether the strategies of a process have used workers.

    Example:

    >>> use = WorkerUse()
    >>> use.is_missing
    False
    """

    def __init__(self) -> None:
        self._runtimes: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._is_expected = False
        self.has_begun = False

    def expect(self, runtime: Closable) -> None:
        """Record that a strategy was made.

        Args:
            runtime: the strategy's.
        """
        self._is_expected = True
        self._runtimes.add(runtime)

    def begin(self) -> None:
        """Record that a run of `fit`, `evaluate` or `predict`, or a function, goes to workers."""
        self.has_begun = True

    @property
    def is_possible(self) -> bool:
        """Whether there is a strategy that is not closed."""
        return any(not runtime.closed for runtime in self._runtimes)

    @property
    def is_missing(self) -> bool:
        """Whether a strategy was made, and none has used a worker."""
        return self._is_expected and not self.has_begun


WORKER_USE = WorkerUse()  # of this process
