"""Ctrl-C and SIGTERM end a job in order; one that does not come to its end is ended at once."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import ClassVar, NoReturn

from tfps.terminal import SHOW_CURSOR, fresh_line, open_line

# Ending takes a second, and ten where servers have to be found lost. Kubernetes kills after 30.
GRACE_S = 20.0
RECEIPT_S = 1.0  # writing a line takes microseconds
STOPPING = (signal.SIGINT, signal.SIGTERM)


def end_on_signals(
    numbers: Sequence[int] = STOPPING,
    *,
    grace_s: float = GRACE_S,
    last_words: Callable[[int], object] | None = None,
) -> None:
    """Let a first signal raise `KeyboardInterrupt` or `SystemExit`, and make sure that it helps.

    An exception out of a signal can come anywhere, also within a lock of somebody's that is then
    never released; and it does not come at all while the main thread is in C++ code that waits for
    a lost task. So a thread sees to it that the process ends in time, with the status that shells
    expect: 128 + the signal's number. After a second signal it ends at once.

    A signal that the program takes over afterwards, with a handler of its own, is left to it. Call
    this in the main thread.

    Args:
        numbers: of the signals.
        grace_s: from the first signal to the end at the latest.
        last_words: called before such an end, with the status.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # By C code: the thread hears of a signal even where Python code of the main thread never runs.
    signal.set_wakeup_fd(writer)
    receipt = _Receipt()
    handler = partial(_raise, receipt, numbers)
    for number in numbers:
        signal.signal(number, handler)

    def next_signal(timeout_s: float | None) -> int | None:
        return _next(reader, (handler, _leave_to_thread), timeout_s=timeout_s)

    threading.Thread(
        target=_watch,
        args=(next_signal, receipt, grace_s, last_words),
        name="tfps-signals",
        daemon=True,
    ).start()


def status_of_signal() -> int | None:
    """The exit status of a signal that has begun to end this process; None: none has.

    Where TensorFlow was just making an error of its own, it raises that one, or a `RuntimeError` of
    pybind11, in the place of the signal's exception.
    """
    return _Receipt.status


def take_signals() -> None:
    """Get the signals that came while this process was started, and those to come."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


class _Receipt:
    """Says which signal came, once: by the thread, or by a main thread that ends before it."""

    status: ClassVar[int | None] = None  # of the process, once one has come

    def __init__(self) -> None:
        self._begun = threading.Lock()
        self._written = threading.Event()

    def give(self, number: int) -> None:
        if not self._begun.acquire(blocking=False):
            self._written.wait(RECEIPT_S)
            return
        _Receipt.status = 128 + number
        if number == signal.SIGINT:
            open_line(True)  # which a terminal begins with ^C
        _say(f"{signal.Signals(number).name}: stopping (once more: at once)")
        self._written.set()


def _raise(
    receipt: _Receipt, numbers: Sequence[int], number: int, _frame: FrameType | None
) -> NoReturn:
    for later in numbers:
        signal.signal(later, _leave_to_thread)
    receipt.give(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _leave_to_thread(_number: int, _frame: FrameType | None) -> None:
    """A second exception would only disturb what the first one ends."""


def _watch(
    next_signal: Callable[[float | None], int | None],
    receipt: _Receipt,
    grace_s: float,
    last_words: Callable[[int], object] | None,
) -> None:
    number = next_signal(None)
    assert number is not None
    name = signal.Signals(number).name
    receipt.give(number)
    if next_signal(grace_s) is None:
        with tempfile.NamedTemporaryFile("w", prefix="tfps-stopped-", delete=False) as stacks:
            faulthandler.dump_traceback(stacks)
        _say(
            f"still running {grace_s:g} s after {name}; ended. Where it stood: {stacks.name}",
            is_last=True,
        )
    else:
        _say("stopped at once", is_last=True)
    status = 128 + number
    try:
        if last_words is not None:
            last_words(status)
    finally:
        os._exit(status)


def _next(reader: int, handlers: Sequence[object], *, timeout_s: float | None) -> int | None:
    """The next signal that one of our handlers gets, or None."""
    while select.select([reader], [], [], timeout_s)[0]:
        number = os.read(reader, 1)[0]
        if signal.getsignal(number) in handlers:
            return number
    return None


def _say(text: str, *, is_last: bool = False) -> None:
    """Past Python's streams, whose locks the main thread may hold."""
    stream = sys.stderr  # of a file number of its own where libraries' lines are sorted out
    number, is_terminal = (stream.fileno(), stream.isatty()) if stream is not None else (2, False)
    begins = fresh_line() if is_terminal else ""
    ends = SHOW_CURSOR if is_last and is_terminal else ""
    os.write(number, f"{begins}tfps: {text}\n{ends}".encode())
