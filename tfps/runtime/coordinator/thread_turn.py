"""Defines the lock with which one thread of the chief at a time uses the workers. Pure."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator


def _return_true() -> bool:
    return True


class ThreadTurn:
    """A lock for one thread at a time, in the order of requests, which a waiting owner may lend.

    A thread has it while it starts, drains or ends a run, saves or predicts. `fit` lends it while
    it waits for steps and while callbacks run, so that another thread can read the weights then;
    each thread leaves the run in a state that can continue.

    Example:

    >>> turn = ThreadTurn()
    >>> def borrow():
    ...     with turn.hold():
    ...         print("borrowed")
    >>> with turn.hold(), turn.lend():
    ...     thread = threading.Thread(target=borrow)
    ...     thread.start()
    ...     thread.join()
    borrowed
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._lent_from_s: float | None = None  # the time from which another thread may take it
        self._waiting: list[Callable[[], bool]] = []  # the conditions of waiting threads, in order

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Wait until no other thread has the lock, and hold it while the context is open."""
        with self._changed:
            is_mine = self._is_owner()
            outer, self._lent_from_s = self._lent_from_s, None if is_mine else self._lent_from_s
        if not is_mine:
            self._take(_return_true)
        try:
            yield
        finally:
            if is_mine:
                self._lend(outer)
            else:
                self._release()

    @contextlib.contextmanager
    def lend(
        self, until: Callable[[], bool] = _return_true, *, after_s: float = 0.0
    ) -> Iterator[None]:
        """Let other threads take the lock while the context is open, if this thread has it.

        Args:
            until: the lock comes back when no other thread has it and this returns True; called by
                the thread that gives it up.
            after_s: lend only after this time, since a shorter wait is not worth the change.
        """
        if not self._is_owner():
            yield
            return
        self._lend(time.monotonic() + after_s)
        try:
            yield
        finally:
            with self._changed:
                stays = self._is_owner() and until()
                self._lent_from_s = None if stays else self._lent_from_s
            if not stays:
                self._release()
                self._take(until)

    def _is_owner(self) -> bool:
        return self._owner == threading.get_ident()

    def _lend(self, from_s: float | None) -> None:
        with self._changed:
            if self._is_owner():
                self._lent_from_s = from_s
            self._changed.notify_all()

    def _release(self) -> None:
        with self._changed:
            if self._is_owner():  # another thread may have taken it, or an interrupt have come
                self._owner = self._lent_from_s = None
            self._changed.notify_all()

    def _take(self, until: Callable[[], bool]) -> None:
        wanted = functools.partial(until)  # each thread has its own
        with self._changed:
            self._waiting.append(wanted)
            try:
                while (
                    left_s := self._compute_remaining_wait_s()
                ) or self._get_next_waiting() is not wanted:
                    self._changed.wait(left_s or None)
                self._owner, self._lent_from_s = threading.get_ident(), None
            finally:
                self._waiting.remove(wanted)
                self._changed.notify_all()  # after an interrupt the next one is another

    def _compute_remaining_wait_s(self) -> float:
        """Return the seconds until another thread may take the lock."""
        if self._owner is None:
            return 0.0
        from_s = math.inf if self._lent_from_s is None else self._lent_from_s
        return min(max(0.0, from_s - time.monotonic()), threading.TIMEOUT_MAX)

    def _get_next_waiting(self) -> Callable[[], bool] | None:
        return next((wanted for wanted in self._waiting if wanted()), None)
