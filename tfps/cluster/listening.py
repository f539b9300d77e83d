"""Checks whether a task can listen at its address, and finds the process that uses the port."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

import psutil

from tfps.cluster.address import join_address, split_address
from tfps.cluster.ports import PortLease
from tfps.cluster.spec import ClusterSpec
from tfps.errors import ListenError

SHOWN_CHARACTERS = 80  # the length to which a command line is cut
REASONS = {
    errno.EADDRINUSE: "is in use",
    errno.EACCES: "is reserved for the superuser",  # below 1024, as a rule
}


def check_listening(spec: ClusterSpec, task_type: str, task_index: int) -> None:
    """Check that a TensorFlow server can listen at a task's port of this machine.

    The server listens at all of the machine's addresses, whatever host the task's address has.

    Args:
        spec: the cluster.
        task_type: the type of this process's task.
        task_index: the index of this process's task.

    Raises:
        ListenError: it cannot listen; the message names the task, the address, the process that
            uses the port if it is known, and what to do.
    """
    address = spec.address(task_type, task_index)
    problem = _port_problem(split_address(address)[1])
    if problem is not None:
        raise ListenError(_explain(f"{task_type} {task_index}", address, problem))


def make_port_error(spec: ClusterSpec, task_type: str, task_index: int, reason: str) -> ListenError:
    """Return the error for a server that did not start although the port seemed to be free.

    Args:
        spec: the cluster.
        task_type: the type of this process's task.
        task_index: the index of this process's task.
        reason: the message of TensorFlow's error.
    """
    address = spec.address(task_type, task_index)
    port = split_address(address)[1]
    problem = _port_problem(port) or f"the server at port {port} did not start ({reason})"
    return ListenError(_explain(f"{task_type} {task_index}", address, problem))


def address_towards(address: str, *, port: int) -> str:
    """Return the address under which another machine reaches a port of this process.

    Args:
        address: an address on that machine that accepts connections.
        port: the port of this process.
    """
    with socket.create_connection(split_address(address)) as connection:
        return join_address(connection.getsockname()[0], port)


def is_elsewhere(address: str) -> bool:
    """Return whether the host of an address is another machine; False if that is unknown.

    Example:

    >>> is_elsewhere("localhost:2222"), is_elsewhere("192.0.2.1:2222")  # for documentation only
    (False, True)
    """
    host, _ = split_address(address)
    try:
        places = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:  # the name does not resolve here
        return False
    return all(_is_other_address(family, place) for family, _, _, _, place in places)


def _is_other_address(family: int, place: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family) as sock:
            sock.bind(place)
    except OSError as error:
        return error.errno == errno.EADDRNOTAVAIL
    return False


def _port_problem(port: int) -> str | None:
    """Bind the port as gRPC does, without listening, and release it; return the problem or None."""
    shared = os.environ.get(PortLease.REUSE_PORT_VARIABLE, "").lower() in ("1", "true")
    for family, host in _all_listening_sockets():
        with contextlib.suppress(OSError), socket.socket(family) as sock:
            # With this option a bind fails if a process listens, not if old connections time out.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared and hasattr(socket, "SO_REUSEPORT"):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                sock.bind((host, port))
            except OSError as error:
                if error.errno not in REASONS:
                    continue  # for example, IPv6 is disabled
                return (
                    f"port {port} of this machine {REASONS[error.errno]}{_describe_holders(port)}"
                )
            return None
    return None


def _all_listening_sockets() -> Iterator[tuple[int, str]]:
    if socket.has_dualstack_ipv6():
        yield socket.AF_INET6, "::"
    yield socket.AF_INET, "0.0.0.0"


def _describe_holders(port: int) -> str:
    """Return a text that names the processes that listen at a port, if this user may know."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:  # not on Linux, where other users' processes have no number
        return ""
    pids = {
        connection.pid
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == port
    }
    if os.getpid() in pids:
        return (
            " by this process: a TensorFlow server that it started earlier keeps the port until "
            "the process ends"
        )
    named = [_describe(pid) for pid in sorted(pid for pid in pids if pid is not None)]
    if named:
        return f" by {' and '.join(named)}"
    return " by a process of another user or container" if pids else ""


def _describe(pid: int) -> str:
    words = ""
    with contextlib.suppress(psutil.Error):
        words = " ".join(" ".join(psutil.Process(pid).cmdline()).split())
    if len(words) > SHOWN_CHARACTERS:
        words = f"{words[:SHOWN_CHARACTERS]}..."
    return f"process {pid} ({words})" if words else f"process {pid}"


def _explain(name: str, address: str, problem: str) -> str:
    lines = [
        f"{name} cannot listen at {address}: {problem}.",
        f"End the process at this port, or change the address of {name} in the TF_CONFIG of "
        "every task.",
    ]
    if is_elsewhere(address):
        host, _ = split_address(address)
        lines.append(
            f"{host} is not an address of this machine: check that this TF_CONFIG is not that of "
            "another task."
        )
    return " ".join(lines)
