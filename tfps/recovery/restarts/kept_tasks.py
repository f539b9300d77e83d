"""Who starts the tasks of a cluster again, as far as this process knows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from tfps.recovery.restarts.restart_policy import Task
from tfps.units import counted


class KeptTasks(Protocol):
    """Tasks that somebody starts again when they die."""

    @property
    def end_reason(self) -> str:
        """Why the job cannot go on; empty while it can."""

    @property
    def given_up(self) -> str:
        """Why a parameter server is not started again; empty while none is given up."""

    @property
    def restarts(self) -> list[str]:
        """Each restart, as in ``worker 1 (SIGKILL)``."""

    def want_servers(self, wanted: Callable[[], bool]) -> None:
        """Start lost parameter servers again as well.

        Args:
            wanted: answers whether the job could use one.
        """

    def note_lost(self, tasks: Iterable[Task]) -> None:
        """Take note of all tasks that the guard holds lost now, and has let out of the job."""


_kept: dict[frozenset[str], KeptTasks] = {}
_lock = threading.Lock()


def keep(addresses: Iterable[str], tasks: KeptTasks) -> None:
    """Note who keeps the tasks at these addresses, ``host:port``."""
    with _lock:
        _kept[frozenset(addresses)] = tasks


def leave(addresses: Iterable[str]) -> None:
    """Nobody keeps the tasks at these addresses any more."""
    with _lock:
        _kept.pop(frozenset(addresses), None)


def kept_tasks(addresses: Iterable[str]) -> KeptTasks | None:
    """Return who keeps some of these tasks, or None: they are started by somebody else."""
    wanted = frozenset(addresses)
    with _lock:
        return next((tasks for known, tasks in _kept.items() if known & wanted), None)


def are_started_again(addresses: Iterable[str]) -> bool:
    """Whether this process, or the one that has started it, starts these tasks again."""
    return kept_tasks(addresses) is not None


def ask_for_servers(addresses: Iterable[str], *, unless: Callable[[], bool]) -> KeptTasks | None:
    """Let who keeps these tasks start lost servers again as well; answers it if it is known here.

    Args:
        addresses: of the tasks.
        unless: answers whether nobody needs them any more.
    """
    kept = kept_tasks(addresses)
    if kept is not None:
        kept.want_servers(lambda: not unless())
    return kept


def in_words(restarts: Iterable[str]) -> str:
    """Restarts for people; empty where there were none.

    Example:

    >>> in_words(["worker 1 (SIGKILL)", "worker 0 (status 1)"])
    '2 restarts: worker 1 (SIGKILL), worker 0 (status 1)'
    """
    found = list(restarts)
    return f"{counted(len(found), 'restart')}: {', '.join(found)}" if found else ""
