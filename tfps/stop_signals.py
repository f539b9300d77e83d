"""End a job in order after Ctrl-C or SIGTERM, or immediately if that takes too long."""

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
from typing import Any, ClassVar, NoReturn

from tfps.terminal import SHOW_CURSOR, fresh_line, open_line

# Ending takes a second, or ten if lost servers must be detected. Kubernetes kills after 30.
GRACE_S = 20.0
# For a `fit` that saves first.
SAVE_GRACE_S = 25.0
REPORT_TIMEOUT_S = 1.0  # writing a line takes microseconds
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_on_signals(
    numbers: Sequence[int] = STOP_SIGNALS,
    *,
    grace_s: float = GRACE_S,
    before_exit: Callable[[int], object] | None = None,
) -> None:
    """Let a first signal raise `KeyboardInterrupt` or `SystemExit`, and end the process in time.

    A signal's exception can be raised anywhere, even where it leaves a lock unreleased, and it is
    not raised while the main thread is in C++ code that waits for a lost task. So a thread ends the
    process after `grace_s`, or immediately after a second signal, with the status that shells
    expect: 128 + the signal's number.

    A signal for which the program sets its own handler afterwards is left to it. Call this in the
    main thread.

    Args:
        numbers: the numbers of the signals.
        grace_s: the most seconds from the first signal to the end.
        before_exit: called with the status before the thread ends the process.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # C code writes to it, so the thread gets a signal even if the main thread runs no Python code.
    signal.set_wakeup_fd(writer)
    report = _SignalReport()
    handler = partial(_raise_for_signal, report, numbers)
    for number in numbers:
        signal.signal(number, handler)

    def next_signal(timeout_s: float | None) -> int | None:
        return _read_signal(reader, (handler, _ignore_signal), timeout_s=timeout_s)

    threading.Thread(
        target=_end_in_time,
        args=(next_signal, report, grace_s, before_exit),
        name="tfps-signals",
        daemon=True,
    ).start()


def status_of_signal() -> int | None:
    """Return the exit status of a signal that has begun to end this process, or None.

    If TensorFlow was just making an error of its own, it raises that one, or a `RuntimeError` of
    pybind11, instead of the signal's exception.
    """
    return _SignalReport.status


def ends_in_order(handler: Any) -> bool:
    """Return whether a signal's handler is the usual one: Python's, the system's, or ours."""
    usual = (signal.default_int_handler, signal.SIG_DFL, _raise_for_signal)
    return getattr(handler, "func", handler) in usual


def unblock_signals() -> None:
    """Unblock the signals that came while this process was started, and later ones."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


class _SignalReport:
    """Reports a signal once: from the thread, or from the main thread if it is faster."""

    status: ClassVar[int | None] = None  # of the process, once one has come

    def __init__(self) -> None:
        self._begun = threading.Lock()
        self._written = threading.Event()

    def write(self, number: int) -> None:
        if not self._begun.acquire(blocking=False):
            self._written.wait(REPORT_TIMEOUT_S)
            return
        _SignalReport.status = 128 + number
        if number == signal.SIGINT:
            open_line(True)  # which a terminal begins with ^C
        write_directly(f"{signal.Signals(number).name}: stopping (repeat to stop at once)")
        self._written.set()


def _raise_for_signal(
    report: _SignalReport, numbers: Sequence[int], number: int, _frame: FrameType | None
) -> NoReturn:
    for later in numbers:
        signal.signal(later, _ignore_signal)
    report.write(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal in the main thread: a second exception would only disturb the end."""


def _end_in_time(
    next_signal: Callable[[float | None], int | None],
    report: _SignalReport,
    grace_s: float,
    before_exit: Callable[[int], object] | None,
) -> None:
    number = next_signal(None)
    assert number is not None
    name = signal.Signals(number).name
    report.write(number)
    if next_signal(grace_s) is None:
        with tempfile.NamedTemporaryFile("w", prefix="tfps-stopped-", delete=False) as stacks:
            faulthandler.dump_traceback(stacks)
        write_directly(
            f"killed: still running {grace_s:g} s after {name}; see the stacks in {stacks.name}",
            is_last=True,
        )
    else:
        write_directly("stopped at once", is_last=True)
    status = 128 + number
    try:
        if before_exit is not None:
            before_exit(status)
    finally:
        os._exit(status)


def _read_signal(reader: int, handlers: Sequence[object], *, timeout_s: float | None) -> int | None:
    """Return the next signal that one of these handlers gets, or None after the timeout."""
    while select.select([reader], [], [], timeout_s)[0]:
        number = os.read(reader, 1)[0]
        if signal.getsignal(number) in handlers:
            return number
    return None


def write_directly(text: str, *, is_last: bool = False) -> None:
    """Write a message directly, since the main thread may hold the locks of Python's streams."""
    stream = sys.stderr  # has its own file number if a noise filter is installed
    try:
        number, is_terminal = stream.fileno(), stream.isatty()
    except (AttributeError, OSError):  # there is none, or it is that of a notebook
        number, is_terminal = 2, False
    begins = fresh_line() if is_terminal else ""
    ends = SHOW_CURSOR if is_last and is_terminal else ""
    os.write(number, f"{begins}tfps: {text}\n{ends}".encode())
