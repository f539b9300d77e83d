"""End a task together with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

from tfps.launch.environment import PARENT_PID

PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>
POLL_S = 1.0  # only used if the kernel sends no signal


def end_with_parent(*, watch: bool = True) -> bool:
    """Make this process end with the process in `TFPS_PARENT_PID`; return whether that is set.

    Linux sends a signal itself; elsewhere a thread checks the parent's id every second.

    Args:
        watch: whether to start that thread.
    """
    expected = os.environ.pop(PARENT_PID, "")
    if not expected:
        return False
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = int(expected)
    _end_if_orphaned(parent)  # the parent may have ended before the call above
    if watch:
        threading.Thread(
            target=_watch_parent, args=(parent,), name="tfps-parent", daemon=True
        ).start()
    return True


def _watch_parent(parent: int) -> None:
    while True:
        time.sleep(POLL_S)
        _end_if_orphaned(parent)


def _end_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
