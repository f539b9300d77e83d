"""Ends a process that used TensorFlow as Python does, but without waiting for lost tasks."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def end_process(status: int) -> NoReturn:
    """End this process with a status, as Python does, but without the teardown of modules.

    It joins threads, runs exit functions and flushes streams. It does not destroy modules and
    TensorFlow's runtime: a coordinator that lost a task waits there without limit
    (`WorkerPreemptionHandler.stop`), and other threads may still be in C++ code.

    Args:
        status: the exit status.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except KeyboardInterrupt:
        status = 130
    except SystemExit:  # raised by an exit function, which Python reports and ignores
        pass
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError, AttributeError):  # closed, full, or None
            stream.flush()
    os._exit(status)
