"""How processes end, and how a script is about to, as far as a function at exit can know."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

_exit = sys.exit
_last_exit: SystemExit | None = None


def watch_exit() -> None:
    """Remember what `sys.exit` is called with from now on; calling it again does nothing."""
    sys.exit = _remembering_exit


def exit_status() -> int:
    """Return the status with which this process ends, for functions registered with `atexit`.

    An exception that nobody caught counts as 1. Of `SystemExit` only what `sys.exit` raised is
    known: Python keeps no trace of the others.
    """
    if getattr(sys, "last_value", None) is not None:
        return 130 if isinstance(sys.last_value, KeyboardInterrupt) else 1
    if _last_exit is not None and _reached_the_top(_last_exit):
        return status_of(_last_exit)
    return 0


def status_of(error: SystemExit) -> int:
    """Return the exit status that Python gives a `SystemExit`.

    Example:

    >>> [status_of(SystemExit(code)) for code in (None, 3, "wrong", 256)]
    [0, 3, 1, 0]
    """
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def name_of_status(status: int) -> str:
    """Name a way to end.

    Example:

    >>> name_of_status(-9), name_of_status(3)
    ('SIGKILL', 'status 3')
    """
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _remembering_exit(status: str | int | None = None, /) -> NoReturn:
    global _last_exit
    _last_exit = SystemExit(status)
    raise _last_exit


def _reached_the_top(error: SystemExit) -> bool:
    """Whether an exception left the main module, and was not caught by a caller of `sys.exit`.

    Before Python 3.12 an exception on its way does not carry its frames: there it is taken to have
    got through, which is wrong only for a script that catches the `SystemExit` of `sys.exit`.
    """
    if sys.version_info >= (3, 12):
        trace = error.__traceback__
        return trace is not None and trace.tb_frame.f_back is None
    return True
