"""Register the supervisors that restart tasks, in this process or in its parent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from tfps.recovery.restarts.restart_policy import Task
from tfps.units import counted


class TaskSupervisor(Protocol):
    """Starts the tasks of a cluster again when they die."""

    @property
    def end_reason(self) -> str:
        """The reason why the job cannot go on; empty while it can."""

    @property
    def give_up_reason(self) -> str:
        """The reason why a lost parameter server is not restarted; empty if none is given up."""

    @property
    def restarts(self) -> list[str]:
        """The restarts so far, each as in ``worker 1 (SIGKILL)``."""

    def set_server_restarts(self, wanted: Callable[[], bool]) -> None:
        """Start lost parameter servers again too, not only workers.

        Args:
            wanted: returns whether the job could use a restarted server.
        """

    def report_lost(self, tasks: Iterable[Task]) -> None:
        """Record all tasks that are lost now; the guard has already evicted lost workers."""


_supervisors: dict[frozenset[str], TaskSupervisor] = {}
_lock = threading.Lock()


def register_supervisor(addresses: Iterable[str], supervisor: TaskSupervisor) -> None:
    """Register the supervisor of the tasks at these addresses, ``host:port``."""
    with _lock:
        _supervisors[frozenset(addresses)] = supervisor


def unregister_supervisor(addresses: Iterable[str]) -> None:
    """Remove the supervisor of the tasks at these addresses from the registry."""
    with _lock:
        _supervisors.pop(frozenset(addresses), None)


def get_supervisor(addresses: Iterable[str]) -> TaskSupervisor | None:
    """Return the supervisor that restarts the tasks at these addresses, or None."""
    wanted = frozenset(addresses)
    with _lock:
        return next((each for known, each in _supervisors.items() if known & wanted), None)


def are_restarted(addresses: Iterable[str]) -> bool:
    """Return whether this process, or its parent, starts these tasks again."""
    return get_supervisor(addresses) is not None


def request_server_restarts(
    addresses: Iterable[str], *, not_needed: Callable[[], bool]
) -> TaskSupervisor | None:
    """Ask the supervisor of these tasks to start lost servers again too, not only workers.

    Args:
        addresses: the tasks' addresses, ``host:port``.
        not_needed: returns whether the servers are not needed any more.

    Returns:
        The supervisor, or None if there is none.
    """
    supervisor = get_supervisor(addresses)
    if supervisor is not None:
        supervisor.set_server_restarts(lambda: not not_needed())
    return supervisor


def describe_restarts(restarts: Iterable[str]) -> str:
    """Return a sentence about restarts, or an empty string if there were none.

    Example:

    >>> describe_restarts(["worker 1 (SIGKILL)", "worker 0 (status 1)"])
    '2 restarts: worker 1 (SIGKILL), worker 0 (status 1)'
    """
    texts = list(restarts)
    return f"{counted(len(texts), 'restart')}: {', '.join(texts)}" if texts else ""
