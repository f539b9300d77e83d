"""The signals that a process gets which has started others, and passes on to them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ReceivedSignals:
    """Takes the signals that end a job, so that they end it in order.

    Attributes:
        received: their numbers, in their order.
        first_at: when the first one came, on the monotonic clock; 0 before.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.first_at = 0.0
        self._previous: dict[int, object] = {}

    def __enter__(self) -> ReceivedSignals:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._take) for number in STOPPING}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.first_at = self.first_at or time.monotonic()
        self.received.append(number)


@contextlib.contextmanager
def resting_together(send: Callable[[int], object]) -> Iterator[None]:
    """While it is open, a terminal's Ctrl-Z stops a child in a session of its own as well.

    Args:
        send: sends the child a signal.
    """

    def rest(_number: int, _frame: FrameType | None) -> None:
        send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)  # returns when somebody lets this process go on
        send(signal.SIGCONT)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTSTP, rest)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
