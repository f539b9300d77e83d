"""The clients of a cluster in this process, which are notified before its tasks end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Client:
    """An object that uses tasks of a cluster, such as a strategy.

    Args:
        addresses: the addresses of the tasks, ``host:port``.
        leave: called with the reason; after it returns the client no longer uses the tasks.
        disconnect: called once all clients have left; ends the connections to the tasks, which
            several clients may share.
        is_open: returns whether the client may still use the tasks.
    """

    addresses: frozenset[str]
    leave: Callable[[str], object]
    disconnect: Callable[[], object]
    is_open: Callable[[], bool]


_clients: list[Client] = []
_lock = threading.Lock()


def register_client(client: Client) -> None:
    """Register a client until its tasks end; it is notified then, even if it has left before."""
    with _lock:
        _clients.append(client)


def has_clients(addresses: Iterable[str]) -> bool:
    """Return whether an open client uses one of these tasks, given as ``host:port``."""
    wanted = frozenset(addresses)
    with _lock:
        using = [client for client in _clients if client.addresses & wanted]
    return any(client.is_open() for client in using)


def close_clients(addresses: Iterable[str], *, reason: str) -> None:
    """Close all clients of some tasks, such as strategies, the newest first.

    Args:
        addresses: the addresses of the tasks that are about to end.
        reason: the reason, such as ``its LocalCluster is closed``.

    Example:

    >>> said = []
    >>> tasks, disconnect = frozenset({"a:1"}), lambda: said.append("gone")
    >>> register_client(Client(tasks, said.append, disconnect, is_open=lambda: not said))
    >>> has_clients(["a:1"])
    True
    >>> close_clients(["a:1", "b:1"], reason="the cluster is closed")
    >>> close_clients(["a:1"], reason="the cluster is closed")
    >>> said
    ['the cluster is closed', 'gone']
    """
    ending = frozenset(addresses)
    with _lock:
        leaving = [client for client in reversed(_clients) if client.addresses & ending]
        _clients[:] = [client for client in _clients if not client.addresses & ending]
    for client in leaving:
        client.leave(reason)
    for client in leaving:
        client.disconnect()
