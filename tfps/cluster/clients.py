"""Who uses the tasks of a cluster from this process, and is told before somebody ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Client:
    """What uses tasks.

    Args:
        addresses: of the tasks, ``host:port``.
        leave: called with the reason; uses the tasks no more when it returns.
        disconnect: called once all clients have left; ends the connections to the tasks, where
            several clients may share them.
    """

    addresses: frozenset[str]
    leave: Callable[[str], object]
    disconnect: Callable[[], object]


_clients: list[Client] = []
_lock = threading.Lock()


def register_client(client: Client) -> None:
    """Note a client until the tasks end; a client that has left by itself is told as well."""
    with _lock:
        _clients.append(client)


def close_clients(addresses: Iterable[str], *, reason: str) -> None:
    """Let all clients leave that use one of these tasks, the newest first.

    Args:
        addresses: of the tasks that are about to end.
        reason: why, as in ``its LocalCluster is closed``.

    Example:

    >>> said = []
    >>> register_client(Client(frozenset({"a:1"}), said.append, lambda: said.append("gone")))
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
