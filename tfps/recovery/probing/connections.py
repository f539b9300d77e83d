"""Cut this process's connections to a task, which ends every request that waits for it."""

from __future__ import annotations

import os
import socket

import psutil

from tfps.cluster.address import split_address


def cut_connections(address: str) -> int:
    """Shut down this process's TCP connections to an address.

    TensorFlow gives an eager operation on another task no deadline and no way to cancel it: the
    thread that reads a variable of a stopped server waits forever. When the connection is shut
    down, the operation fails as if the task had died.

    Args:
        address: the task's address, ``host:port``.

    Returns:
        The number of connections that were shut down.

    Example:

    >>> cut_connections("127.0.0.1:1")
    0
    """
    host, port = split_address(address)
    try:
        socket_addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:  # the host name is gone: the network ends its connections
        return 0
    peers = {(_to_ipv4(str(place[0])), int(place[1])) for *_, place in socket_addresses}
    return sum(
        _shut_down_if_connected_to(connection.fd, peers)
        for connection in psutil.Process().net_connections("tcp")
        if connection.raddr and (_to_ipv4(connection.raddr.ip), connection.raddr.port) in peers
    )


def _shut_down_if_connected_to(descriptor: int, peers: set[tuple[str, int]]) -> bool:
    # A copy: the descriptor could become another file between the check and the shutdown.
    try:
        copy = os.dup(descriptor)
    except OSError:  # closed meanwhile
        return False
    try:
        connection = socket.socket(fileno=copy)
    except OSError:  # it is no socket any more
        os.close(copy)
        return False
    with connection:
        try:
            host, port, *_ = connection.getpeername()
            if (_to_ipv4(host), port) in peers:
                connection.shutdown(socket.SHUT_RDWR)
                return True
        except OSError:  # the other side ended it meanwhile
            return False
    return False


def _to_ipv4(host: str) -> str:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; any other host as it is."""
    return host.removeprefix("::ffff:")
