"""Free ports of this machine, reserved until a task listens on them."""

from __future__ import annotations

import os
import socket

import portpicker

from tfps.errors import ClusterError

ATTEMPTS = 20  # another process may take a port between the choice and the reservation


class PortLease:
    """Reserves ports of this machine by sockets that are bound but do not listen.

    On systems with ``SO_REUSEPORT`` the reservation stays while a task listens on the port, so that
    a killed task finds its port free when it restarts. The task's gRPC server must use the option
    too: set `REUSE_PORT_VARIABLE` in its environment. On other systems `release` a port right
    before its task starts.

    Args:
        reservations: port -> the socket that reserves it.

    Example:

    >>> with lease_ports(2) as lease:
    ...     len(set(lease.ports))
    2
    """

    REUSE_PORT_VARIABLE = "TF_GRPC_REUSE_PORT"  # read by TensorFlow's server when it starts

    def __init__(self, reservations: dict[int, socket.socket]) -> None:
        self._reservations = reservations
        self.ports = tuple(reservations)

    @property
    def can_share(self) -> bool:
        """Whether a task can listen on a port while it is still reserved."""
        return hasattr(socket, "SO_REUSEPORT")

    def share_with_this_process(self) -> None:
        """Let a server that TensorFlow starts in this process listen on a leased port."""
        os.environ[self.REUSE_PORT_VARIABLE] = "true"

    def absorb(self, other: PortLease) -> None:
        """Move the ports of another lease to this one."""
        self._reservations |= other._reservations
        self.ports = tuple(self._reservations)
        other._reservations, other.ports = {}, ()

    def release(self, port: int) -> None:
        """Release one port; releasing it again does nothing."""
        reservation = self._reservations.pop(port, None)
        if reservation is not None:
            reservation.close()

    def close(self) -> None:
        """Release all ports."""
        for port in self.ports:
            self.release(port)

    def __enter__(self) -> PortLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lease_ports(count: int, *, host: str = "127.0.0.1") -> PortLease:
    """Reserve free ports until the lease is closed.

    Args:
        count: the number of ports.
        host: the local address on which they must be free.

    Raises:
        ClusterError: no free port was found.
    """
    reservations: dict[int, socket.socket] = {}
    for _ in range(count + ATTEMPTS):
        if len(reservations) == count:
            break
        port = portpicker.pick_unused_port()
        reservation = _reserve(host, port) if port not in reservations else None
        if reservation is not None:
            reservations[port] = reservation
    if len(reservations) < count:
        PortLease(reservations).close()
        raise ClusterError(
            f"found {len(reservations)} free ports on {host}, expected {count}; stop programs "
            "that use many ports, or list the addresses in TF_CONFIG"
        )
    return PortLease(reservations)


def _reserve(host: str, port: int) -> socket.socket | None:
    reservation = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        reservation.bind((host, port))
        # Only now: with it, the port could be bound that another process has just reserved.
        if hasattr(socket, "SO_REUSEPORT"):
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:  # in use by now: the caller picks another one
        reservation.close()
        return None
    return reservation
