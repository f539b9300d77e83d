"""Run a user's script, or another program, in this process, as `python script.py` would."""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from tfps.cluster.exit_status import status_of
from tfps.stop_signals import status_of_signal
from tfps.terminal import write_message

_modules: list[ModuleType] = []  # a script's objects live until the process ends, as Python's do


def run_script(script: str | os.PathLike[str], arguments: Sequence[str]) -> None:
    """Run a script as the main module of this process; its exceptions are raised.

    Args:
        script: the file.
        arguments: its command-line arguments.
    """
    path = os.fspath(script)
    sys.argv = [path, *arguments]
    _put_first_on_path(str(Path(path).resolve().parent))
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__["__builtins__"] = builtins
    _modules.append(module)
    sys.modules["__main__"] = module
    with io.open_code(str(Path(path).resolve())) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def print_error(error: BaseException) -> None:
    """Print an exception as Python does at the end of a program, without the lines of this file."""
    trace = _without_launcher_frames(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def exit_status_of(
    program: Callable[[], object],
    *,
    supervised: bool = False,
    report_error: Callable[[BaseException], object] = print_error,
    status_of_error: Callable[[BaseException], int] = lambda _: 1,
) -> int:
    """Run a program and return the exit status that it would have under Python.

    An uncaught exception is reported once; an uncaught Ctrl-C prints one line.

    Args:
        program: a function, such as a call of `run_script`.
        supervised: whether the process that started this one reports Ctrl-C.
        report_error: called with an uncaught exception, to report it.
        status_of_error: called with an uncaught exception after that; returns the status.
    """
    try:
        program()
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return status_of(error)
    except KeyboardInterrupt as error:
        if sys.excepthook is not sys.__excepthook__:  # the script's own report
            print_error(error)
        elif not supervised and status_of_signal() is None:
            write_message("SIGINT: stopped")
        return 130
    except BaseException as error:  # noqa: BLE001 - as at the top of any Python program
        if (signalled := status_of_signal()) is not None:
            return signalled
        report_error(error)
        return status_of_error(error)
    return 0


def _put_first_on_path(folder: str) -> None:
    if os.environ.get("PYTHONSAFEPATH"):
        return
    if sys.flags.safe_path:  # tfps starts it with -P: there is no entry for the command
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder


def _without_launcher_frames(trace: TracebackType | None) -> TracebackType | None:
    """Remove the frames above the script; a syntax error leaves none."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
