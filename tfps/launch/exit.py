"""The end of a process that used TensorFlow: as Python ends, but without waiting for lost tasks."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def end_process(status: int) -> NoReturn:
    """End this process with a status and do all that Python does at exit, except the teardown.

    Threads are joined, exit functions run and streams are flushed. What is left out is the
    destruction of modules and of TensorFlow's runtime: a coordinator that lost a task waits there
    without limit (`WorkerPreemptionHandler.stop`), and other threads may still be in C++ code.

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
