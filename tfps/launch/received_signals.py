"""Collect the signals of a process that has started others, to forward them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ReceivedSignals:
    """Collects the signals that end a job, so that its parts end in order.

    Attributes:
        received: the numbers of the signals, in their order.
        first_at: the time of the first one, on the monotonic clock; 0 before.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.first_at = 0.0
        self._previous: dict[int, object] = {}

    def __enter__(self) -> ReceivedSignals:
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._record_signal) for number in STOP_SIGNALS
            }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _record_signal(self, number: int, _frame: FrameType | None) -> None:
        self.first_at = self.first_at or time.monotonic()
        self.received.append(number)


@contextlib.contextmanager
def suspend_together(send: Callable[[int], object]) -> Iterator[None]:
    """Return a context in which a terminal's Ctrl-Z also stops a child in another session.

    Args:
        send: sends the child a signal.
    """

    def suspend_both(_number: int, _frame: FrameType | None) -> None:
        send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)  # returns when this process is resumed
        send(signal.SIGCONT)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTSTP, suspend_both)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
