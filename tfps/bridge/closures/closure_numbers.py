"""Numbers of closures: a closure keeps its number when another worker runs it again. Pure."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

_thread = threading.local()


class ClosureNumbers:
    """Assigns increasing numbers to closures.

    Each number belongs to a cell, the number modulo `cells`. A closure has its cell for itself
    while it may still run: until the queue and all threads that run it have dropped it.

    Args:
        cells: the number of cells; more than closures that can be under way at once.

    Example:

    >>> class Closure:
    ...     pass
    >>> numbers, first, second = ClosureNumbers(cells=2), Closure(), Closure()
    >>> numbers.for_closure(first), numbers.for_closure(second), numbers.for_closure(first)
    (1, 2, 1)
    >>> del second
    >>> numbers.for_closure(Closure())
    4
    """

    def __init__(self, *, cells: int) -> None:
        self._cells = cells
        self._lock = threading.Lock()
        self._next = itertools.count(1)
        self._renewed = 0  # numbers up to this one are no longer valid
        self._under_way: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def renew(self) -> int:
        """Assign new numbers to all closures from now on; return one not below any earlier one.

        Example:

        >>> class Closure:
        ...     pass
        >>> numbers, closure = ClosureNumbers(cells=2), Closure()
        >>> numbers.for_closure(closure), numbers.renew(), numbers.for_closure(closure)
        (1, 2, 3)
        """
        with self._lock:
            self._renewed = next(self._next)
            self._under_way.clear()
            return self._renewed

    def begin_after(self, number: int) -> None:
        """Assign only numbers larger than this one."""
        with self._lock:
            self._next = itertools.count(number + 1)

    def for_closure(self, closure: Any) -> int:
        """Return the number of a closure; a new one for None, for work that never runs again.

        Raises:
            RuntimeError: more closures are under way than there are cells.
        """
        with self._lock:
            known: int | None = getattr(closure, "_tfps_number", None)
            if known is not None and known > self._renewed:
                return known
            for number in itertools.islice(self._next, self._cells):
                if number % self._cells not in self._under_way:
                    break
            else:
                raise RuntimeError(
                    f"received more than {self._cells} scheduled functions at once, expected one "
                    "for each worker"
                )
            if closure is not None:
                closure._tfps_number = number
                self._under_way[number % self._cells] = closure
            return number


@contextlib.contextmanager
def running(closure: Any) -> Iterator[None]:
    """Record that this thread runs a closure on a worker."""
    _thread.closure = closure
    try:
        yield
    finally:
        _thread.closure = None


def running_closure() -> Any:
    """Return the closure that this thread runs on a worker now, or None."""
    return getattr(_thread, "closure", None)
