"""Finds processes, listening ports and threads that code has left behind."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil

SETTLE_S = 10.0  # the time in which leftovers may still end by themselves
LOOK_EVERY_S = 0.05

# The first two live as long as the process by design; pytest-timeout has one for each test.
NOT_LEFT_BEHIND = ("tfps-starter", "tfps-parent", "pytest_timeout")
# So does the process that starts tasks of local clusters: `tfps.launch.fork_server`.
KEPT_CHILD = "fork server"
# And helper processes that the standard library starts once for `multiprocessing`.
KEPT_PROGRAMS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(frozen=True)
class ProcessSnapshot:
    """The descendants of this process, their ports, and its own threads, at one moment.

    Use it to compare two moments yourself; `assert_no_leaks` does this for a block.

    Args:
        processes: the descendants of this process, as ``number command``.
        ports: the TCP ports on which the descendants listen.
        threads: the names of this process's Python threads that are not daemons, or that tfps
            started.

    Example:

    >>> before = ProcessSnapshot.now()
    >>> bool(ProcessSnapshot.now().beyond(before))
    False
    """

    processes: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()
    threads: frozenset[str] = frozenset()

    @classmethod
    def now(cls) -> ProcessSnapshot:
        """Return the current processes, ports and threads."""
        processes, ports = set(), set()
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if child.ppid() == os.getpid() and _is_kept(child):
                    continue
                if child.status() != psutil.STATUS_ZOMBIE:
                    processes.add(f"{child.pid} {' '.join(child.cmdline())}")
                ports |= {
                    connection.laddr.port
                    for connection in child.net_connections("tcp")
                    if connection.status == psutil.CONN_LISTEN
                }
        threads = {
            f"{thread.name} ({thread.ident})"
            for thread in threading.enumerate()
            if not thread.name.startswith(NOT_LEFT_BEHIND)
            and (not thread.daemon or thread.name.startswith("tfps-"))
        }
        return cls(frozenset(processes), frozenset(ports), frozenset(threads))

    def beyond(self, before: ProcessSnapshot) -> ProcessSnapshot:
        """Return the processes, ports and threads that an earlier snapshot does not have.

        Args:
            before: the earlier snapshot.
        """
        return ProcessSnapshot(
            self.processes - before.processes,
            self.ports - before.ports,
            self.threads - before.threads,
        )

    def __or__(self, other: ProcessSnapshot) -> ProcessSnapshot:
        return ProcessSnapshot(
            self.processes | other.processes, self.ports | other.ports, self.threads | other.threads
        )

    def __bool__(self) -> bool:
        return bool(self.processes or self.ports or self.threads)


def _is_kept(child: psutil.Process) -> bool:
    if child.name() == KEPT_CHILD:
        return True
    starts = tuple(f"from {name} import main" for name in KEPT_PROGRAMS)
    return any(argument.startswith(starts) for argument in child.cmdline())


@contextlib.contextmanager
def assert_no_leaks(
    *, settle_s: float = SETTLE_S, kept: Callable[[], ProcessSnapshot] = ProcessSnapshot
) -> Iterator[None]:
    """Fail unless all processes and threads that the block has started end soon after it.

    Use it as a context manager around a test's code.

    Args:
        settle_s: the time in seconds in which they must end, and ports must be closed.
        kept: returns processes, ports and threads that may stay.

    Raises:
        AssertionError: a process, port or thread is left; the message lists them.

    Example:

    >>> with assert_no_leaks():
    ...     thread = threading.Thread(target=print)
    ...     thread.start()
    <BLANKLINE>
    """
    before = ProcessSnapshot.now()
    yield
    ends_at = time.monotonic() + settle_s
    while left := ProcessSnapshot.now().beyond(before | kept()):
        if time.monotonic() > ends_at:
            raise AssertionError(f"received {left} {settle_s:g} s after the end, expected nothing")
        time.sleep(LOOK_EVERY_S)
