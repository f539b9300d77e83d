"""Exit statuses of processes, and of this process as seen by functions at exit."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

TEMPORARY_STATUS = 75  # EX_TEMPFAIL of <sysexits.h>: a retry may succeed
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_exit = sys.exit
_last_exit: SystemExit | None = None


def watch_exit() -> None:
    """Record the argument of `sys.exit` from now on; calling this again does nothing."""
    sys.exit = _recording_exit


def exit_status() -> int:
    """Return the status with which this process ends, for functions registered with `atexit`.

    An uncaught exception counts as 1. Only a `SystemExit` raised by `sys.exit` is known, since
    Python keeps no record of others.
    """
    if getattr(sys, "last_value", None) is not None:
        return 130 if isinstance(sys.last_value, KeyboardInterrupt) else 1
    if _last_exit is not None and _is_uncaught(_last_exit):
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


def is_worth_another_try(status: int) -> bool:
    """Return whether a supervisor of a single task should restart it after this exit status.

    True for crashes, and for a task whose chief stayed away. False for requested ends and for
    errors: a retry would meet the same error, and a user's exception is never retried.

    Args:
        status: the exit status; for a signal its negative number, or 128 + its number as in shells.

    Example:

    >>> [status for status in (0, 1, 2, 75, -9, -15, 130, 137, 139) if is_worth_another_try(status)]
    [75, -9, 137, 139]
    """
    number = -status if status < 0 else status - 128
    return status == TEMPORARY_STATUS or (number > 0 and number not in STOP_SIGNALS)


def name_of_status(status: int) -> str:
    """Return the name of an exit status.

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


def shell_status(status: int) -> int:
    """Return the status of a process as shells report it.

    Args:
        status: negative: the signal that ended it.

    Example:

    >>> shell_status(3), shell_status(-9)
    (3, 137)
    """
    return status if status >= 0 else 128 - status


def _recording_exit(status: str | int | None = None, /) -> NoReturn:
    global _last_exit
    _last_exit = SystemExit(status)
    raise _last_exit


def _is_uncaught(error: SystemExit) -> bool:
    """Return whether an exception ended the main module, uncaught.

    Before Python 3.12 this cannot be found out from the exception. True is then returned, which is
    wrong only for a script that catches the `SystemExit` of `sys.exit`.
    """
    if sys.version_info >= (3, 12):
        trace = error.__traceback__
        return trace is not None and trace.tb_frame.f_back is None
    return True
