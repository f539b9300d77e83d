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
        is_open: answers whether it may use them still.
    """

    addresses: frozenset[str]
    leave: Callable[[str], object]
    disconnect: Callable[[], object]
    is_open: Callable[[], bool]


_clients: list[Client] = []
_lock = threading.Lock()


def register_client(client: Client) -> None:
    """Note a client until the tasks end; a client that has left by itself is told as well."""
    with _lock:
        _clients.append(client)


def has_clients(addresses: Iterable[str]) -> bool:
    """Whether a client has not left that uses one of these tasks, ``host:port``."""
    wanted = frozenset(addresses)
    with _lock:
        using = [client for client in _clients if client.addresses & wanted]
    return any(client.is_open() for client in using)


def close_clients(addresses: Iterable[str], *, reason: str) -> None:
    """Let all clients leave that use one of these tasks, the newest first.

    Args:
        addresses: of the tasks that are about to end.
        reason: why, as in ``its LocalCluster is closed``.

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
