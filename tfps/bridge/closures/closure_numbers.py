"""Numbers closures; a closure that runs again keeps its number. Pure."""

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
    >>> numbers.get_number(first), numbers.get_number(second), numbers.get_number(first)
    (1, 2, 1)
    >>> del second
    >>> numbers.get_number(Closure())
    4
    """

    def __init__(self, *, cells: int) -> None:
        self._cells = cells
        self._lock = threading.Lock()
        self._next = itertools.count(1)
        self._renewed = 0  # numbers up to this one are no longer valid
        self._active: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def renew(self) -> int:
        """Give all closures new numbers from now on; return a number not below any earlier one.

        Example:

        >>> class Closure:
        ...     pass
        >>> numbers, closure = ClosureNumbers(cells=2), Closure()
        >>> numbers.get_number(closure), numbers.renew(), numbers.get_number(closure)
        (1, 2, 3)
        """
        with self._lock:
            self._renewed = next(self._next)
            self._active.clear()
            return self._renewed

    def begin_after(self, number: int) -> None:
        """Assign only numbers larger than this one."""
        with self._lock:
            self._next = itertools.count(number + 1)

    def get_number(self, closure: Any) -> int:
        """Return the number of a closure; None, for work that is never repeated, gets a new number.

        Raises:
            RuntimeError: more closures are under way than there are cells.
        """
        with self._lock:
            known: int | None = getattr(closure, "_tfps_number", None)
            if known is not None and known > self._renewed:
                return known
            for number in itertools.islice(self._next, self._cells):
                if number % self._cells not in self._active:
                    break
            else:
                raise RuntimeError(
                    f"received more than {self._cells} scheduled functions at once, expected one "
                    "for each worker"
                )
            if closure is not None:
                closure._tfps_number = number
                self._active[number % self._cells] = closure
            return number


@contextlib.contextmanager
def mark_running(closure: Any) -> Iterator[None]:
    """Record that this thread runs a closure on a worker."""
    _thread.closure = closure
    try:
        yield
    finally:
        _thread.closure = None


def get_running_closure() -> Any:
    """Return the closure that this thread runs on a worker now, or None."""
    return getattr(_thread, "closure", None)
