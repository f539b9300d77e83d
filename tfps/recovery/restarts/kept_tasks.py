"""A registry of the tasks that this process, or its parent, starts again when they die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from tfps.recovery.restarts.restart_policy import Task
from tfps.units import counted


class KeptTasks(Protocol):
    """The tasks of a cluster, which their keeper starts again when they die."""

    @property
    def end_reason(self) -> str:
        """The reason why the job cannot go on; empty while it can."""

    @property
    def given_up(self) -> str:
        """The reason why a parameter server is not started again; empty while none is given up."""

    @property
    def restarts(self) -> list[str]:
        """The restarts so far, each as in ``worker 1 (SIGKILL)``."""

    def want_servers(self, wanted: Callable[[], bool]) -> None:
        """Start lost parameter servers again as well.

        Args:
            wanted: returns whether the job could use a restarted server.
        """

    def note_lost(self, tasks: Iterable[Task]) -> None:
        """Take note of all tasks that are lost now; the guard has evicted those workers."""


_kept: dict[frozenset[str], KeptTasks] = {}
_lock = threading.Lock()


def keep(addresses: Iterable[str], tasks: KeptTasks) -> None:
    """Register the tasks at these addresses, ``host:port``."""
    with _lock:
        _kept[frozenset(addresses)] = tasks


def leave(addresses: Iterable[str]) -> None:
    """Remove the tasks at these addresses from the registry."""
    with _lock:
        _kept.pop(frozenset(addresses), None)


def kept_tasks(addresses: Iterable[str]) -> KeptTasks | None:
    """Return the registered tasks at some of these addresses, or None if there are none."""
    wanted = frozenset(addresses)
    with _lock:
        return next((tasks for known, tasks in _kept.items() if known & wanted), None)


def are_started_again(addresses: Iterable[str]) -> bool:
    """Return whether this process, or its parent, starts these tasks again."""
    return kept_tasks(addresses) is not None


def ask_for_servers(addresses: Iterable[str], *, unless: Callable[[], bool]) -> KeptTasks | None:
    """Ask the keeper of these tasks to start lost servers again as well.

    Args:
        addresses: the tasks' addresses, ``host:port``.
        unless: returns whether the servers are not needed any more.

    Returns:
        The registered tasks, or None if there are none.
    """
    kept = kept_tasks(addresses)
    if kept is not None:
        kept.want_servers(lambda: not unless())
    return kept


def in_words(restarts: Iterable[str]) -> str:
    """Return a sentence about restarts; an empty string if there were none.

    Example:

    >>> in_words(["worker 1 (SIGKILL)", "worker 0 (status 1)"])
    '2 restarts: worker 1 (SIGKILL), worker 0 (status 1)'
    """
    found = list(restarts)
    return f"{counted(len(found), 'restart')}: {', '.join(found)}" if found else ""
