"""Lets `fit` save before Ctrl-C or SIGTERM ends it, or one of its servers."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from tfps.stop_signals import SAVE_GRACE_S, STOP_SIGNALS, ends_in_order, write_directly

LEAVE_TIMEOUT_S = 5.0  # for a server to end; it takes milliseconds
POLL_INTERVAL_S = 0.05
HOOKS_S = 5.0  # for the hooks of steps that workers have already done


class StopRequested(BaseException):
    """Raised on the main thread, where it waits for workers, when a signal asks `fit` to save."""


class StopRequest:
    """A signal that asks `fit` to save and to end, while the context is open.

    The first SIGINT or SIGTERM is noted, for a moment at which no lock is held. `save_and_end`
    saves then, and does what the signal did before the context: usually it raises
    `KeyboardInterrupt`, or ends the process. A second signal does that at once, and so does the end
    of ``SAVE_GRACE_S`` after SIGTERM. Handlers that a program has set itself stay; on other threads
    than the main one nothing happens. After a save for a server that ends, `fit` goes on.

    Args:
        save: saves; called on the thread that trains, while no worker takes part, with whether
            `fit` ends then.
    """

    def __init__(self, save: Callable[[bool], None] | None = None) -> None:
        self._save = save
        self._number: int | None = None
        self._asked_s = -math.inf
        self._leaving: list[tuple[threading.Event, Callable[[], bool]]] = []
        self._before: dict[int, Any] = {}
        self._limit = threading.Timer(SAVE_GRACE_S, os.kill, (os.getpid(), signal.SIGTERM))

    def __enter__(self) -> StopRequest:
        if self._save is not None and threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if ends_in_order(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        self._limit.cancel()
        for saved, _ in self._leaving:  # at the end of the training
            saved.set()
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._number is not None:
            self._pass_on(number)
        else:
            self._number, self._asked_s = number, time.monotonic()
            write_directly(
                f"{signal.Signals(number).name}: fit saves and ends (repeat to stop at once)"
            )
            if number == signal.SIGTERM:
                self._limit.start()

    def _pass_on(self, number: int) -> None:
        """Do what a signal did before the context, which ends here."""
        self._number = None
        self.__exit__()
        signal.raise_signal(number)

    def save_for(self, has_left: Callable[[], bool]) -> bool:
        """Ask for a save from another thread, and wait for it; return whether it was made.

        Args:
            has_left: returns whether the server has ended for which it is; training waits for that.
        """
        if self._save is None:
            return False
        saved, self._asked_s = threading.Event(), time.monotonic()
        self._leaving.append((saved, has_left))
        return saved.wait(SAVE_GRACE_S)

    @property
    def waits_for_hooks(self) -> bool:
        """Whether hooks of steps that workers have done may come before the save."""
        return time.monotonic() < self._asked_s + HOOKS_S

    def check(self) -> None:
        """Raise if a signal has come, here or to a server."""
        if self._number is not None or self._leaving:
            raise StopRequested

    def save_and_end(self) -> None:
        """Save if that was asked for, and do what a signal did before the context."""
        if self._save is None or (self._number is None and not self._leaving):
            return
        leaving, self._leaving = self._leaving, []
        self._save(self._number is not None)
        limit_s = time.monotonic() + LEAVE_TIMEOUT_S
        for saved, has_left in leaving:
            saved.set()
            while not has_left() and time.monotonic() < limit_s:
                time.sleep(POLL_INTERVAL_S)
        if self._number is not None:
            self._pass_on(self._number)
