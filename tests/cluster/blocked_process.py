"""Blocks every thread of a process for as long as this one runs, as a deadlock in all of them.

    python -m tests.cluster.blocked_process PID

It is not stopped: no signal lets it go on, and to the system it is no stopped process. Only the
process that holds the threads hears of their end, so it is one of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207  # from <linux/ptrace.h>
NEW_THREADS_TOO = 0x8  # PTRACE_O_TRACECLONE
ALL_THREADS = 0x40000000  # __WALL of <linux/wait.h>
BLOCKED = "blocked"


@contextlib.contextmanager
def blocked(pid: int) -> Iterator[None]:
    """Block a process until the context ends, or something kills it."""
    command = [sys.executable, "-m", "tests.cluster.blocked_process", str(pid)]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline().strip() == BLOCKED
            yield
        finally:
            holder.kill()


def main(pid: int) -> None:
    """Hold all threads, say so, and wait until they have ended."""
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    held: set[int] = set()
    while threads := {int(name) for name in os.listdir(f"/proc/{pid}/task")} - held:
        for thread in threads:
            if call(PTRACE_SEIZE, thread, None, NEW_THREADS_TOO) == 0:
                call(PTRACE_INTERRUPT, thread, None, None)
                os.waitpid(thread, ALL_THREADS)
            held.add(thread)  # or it came held, by the thread that has started it
    print(BLOCKED, flush=True)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, ALL_THREADS)


if __name__ == "__main__":
    main(int(sys.argv[1]))
