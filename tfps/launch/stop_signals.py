"""Ctrl-C and SIGTERM end a job in order; one that does not come to its end is ended at once."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import tempfile
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

# Ending takes a second, and ten where servers have to be found lost. Kubernetes kills after 30.
GRACE_S = 20.0
STOPPING = (signal.SIGINT, signal.SIGTERM)


def end_on_signals(
    *, grace_s: float = GRACE_S, last_words: Callable[[int], object] | None = None
) -> None:
    """Let a first signal raise `KeyboardInterrupt` or `SystemExit`, and make sure that it helps.

    An exception out of a signal can come anywhere, also within a lock of somebody's that is then
    never released; and it does not come at all while the main thread is in C++ code that waits for
    a lost task. So a thread sees to it that the process ends in time, with the status that shells
    expect: 128 + the signal's number. After a second signal it ends at once.

    Call it in the main thread.

    Args:
        grace_s: from the first signal to the end at the latest.
        last_words: called before such an end, with the status.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # By C code: the thread hears of a signal even where Python code of the main thread never runs.
    signal.set_wakeup_fd(writer)
    for number in STOPPING:
        signal.signal(number, _raise)
    threading.Thread(
        target=_watch, args=(reader, grace_s, last_words), name="tfps-signals", daemon=True
    ).start()


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    for later in STOPPING:
        signal.signal(later, _leave_to_thread)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _leave_to_thread(_number: int, _frame: FrameType | None) -> None:
    """A second exception would only disturb what the first one ends."""


def _watch(reader: int, grace_s: float, last_words: Callable[[int], object] | None) -> None:
    number = _next(reader, timeout_s=None)
    assert number is not None
    if _next(reader, timeout_s=grace_s) is None:
        with tempfile.NamedTemporaryFile("w", prefix="tfps-stopped-", delete=False) as stacks:
            faulthandler.dump_traceback(stacks)
        name = signal.Signals(number).name
        _say(f"Still running {grace_s:g} s after {name}; ended. Where it stood: {stacks.name}")
    else:
        _say("Stopped at once.")
    status = 128 + number
    try:
        if last_words is not None:
            last_words(status)
    finally:
        os._exit(status)


def _next(reader: int, *, timeout_s: float | None) -> int | None:
    """The next signal that stops, or None."""
    while select.select([reader], [], [], timeout_s)[0]:
        number = os.read(reader, 1)[0]
        if number in STOPPING:
            return number
    return None


def _say(text: str) -> None:
    """Past Python's streams, whose locks the main thread may hold."""
    os.write(2, f"{text}\n".encode())
