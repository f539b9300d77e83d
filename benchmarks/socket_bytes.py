"""Counts the bytes of TCP connections by Linux's own counters, which tfps's counts are checked by.

Linux shows the counters of every connection to any process, so they are read from outside of the
measured ones. Unix sockets have no such counters.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

# Of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP, DONE, FAILED = 4, 20, 0x301, 3, 2
CLONE_NEWNET = 0x40000000  # of linux/sched.h
INFO, ALL_STATES = 2, 0xFFFFFFFF
HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, sender
REQUEST = struct.Struct("=BBBBI48x")  # family, protocol, extensions, padding, states, whose
ATTRIBUTE = struct.Struct("=HH")  # length, type
PORTS = struct.Struct("!HH")  # of this side and of the other one
PORTS_AT, INODE_AT, ATTRIBUTES_AT = 4, 68, 72  # in `struct inet_diag_msg`
COUNTS = struct.Struct("=QQ")  # tcpi_bytes_acked and tcpi_bytes_received of `struct tcp_info`
COUNTS_AT = 120
REPLY_BYTES = 1 << 18
SOCKET = re.compile(r"socket:\[(\d+)\]")


class TcpBytes(NamedTuple):
    """The bytes that connections have sent, as far as the other ends have them, and received."""

    sent: int = 0
    received: int = 0

    def __add__(self, other: Any) -> TcpBytes:
        return TcpBytes(self.sent + other[0], self.received + other[1])


class TcpConnection(NamedTuple):
    """One end of a connection."""

    inode: int
    ports: tuple[int, int]
    moved: TcpBytes


def tcp_bytes(
    processes: Iterable[int], *, but_ports: Iterable[int] = ()
) -> dict[int, TcpBytes] | None:
    """Return the bytes of each process that lives; None where the system does not count them.

    Args:
        processes: their numbers.
        but_ports: connections with one of these on either side are left out.
    """
    left_out = frozenset(but_ports)
    networks: dict[str, dict[int, TcpBytes]] = {}
    found: dict[int, TcpBytes] = {}
    for process in processes:
        try:
            network = os.readlink(f"/proc/{process}/ns/net")
            if network not in networks:
                networks[network] = {
                    each.inode: each.moved
                    for each in _connections_around(process)
                    if left_out.isdisjoint(each.ports)
                }
            counts = networks[network]
            own = [counts[inode] for inode in _inodes(process) if inode in counts]
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except (OSError, AttributeError):  # another system, or a container that may not ask
            return None
        found[process] = sum(own, TcpBytes())
    return found


def tcp_bytes_of(process: int, *, but_ports: Iterable[int] = ()) -> int | None:
    """Return the bytes that a process's TCP connections sent and received; None if not counted.

    Args:
        process: its number.
        but_ports: connections with one of these on either side are left out.
    """
    found = (tcp_bytes([process], but_ports=but_ports) or {}).get(process)
    return None if found is None else sum(found)


def _connections_around(process: int) -> list[TcpConnection]:
    """Return all ends in the network namespace of a process."""
    families = (socket.AF_INET, socket.AF_INET6)
    own, others = (os.readlink(f"/proc/{who}/ns/net") for who in ("self", process))
    if own == others:
        return [each for family in families for each in _connections(family)]
    with ThreadPoolExecutor(1, initializer=_enter_network, initargs=(process,)) as thread:
        found = thread.map(lambda family: list(_connections(family)), families)
        return [each for connections in found for each in connections]


def _enter_network(process: int) -> None:
    """Let this thread alone be in the network namespace of a process."""
    with Path(f"/proc/{process}/ns/net").open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "this process may not enter a network namespace")


def _inodes(process: int) -> Iterator[int]:
    """Yield the inodes of a process's sockets."""
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            found = SOCKET.fullmatch(os.readlink(entry))
        except FileNotFoundError:  # closed meanwhile
            continue
        if found is not None:
            yield int(found[1])


def _connections(family: int) -> Iterator[TcpConnection]:
    """Yield the TCP connections of this machine."""
    request = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INFO - 1), 0, ALL_STATES)
    header = HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as asked:
        asked.send(header + request)
        while True:
            reply = asked.recv(REPLY_BYTES)
            while reply:
                length, kind, *_ = HEADER.unpack_from(reply)
                if kind == DONE:
                    return
                if kind == FAILED:
                    raise OSError(f"the system does not count connections of family {family}")
                yield from _connection_of(reply[HEADER.size : length])
                reply = reply[_aligned(length) :]


def _connection_of(message: bytes) -> Iterator[TcpConnection]:
    (inode,) = struct.unpack_from("=I", message, INODE_AT)
    here, there = PORTS.unpack_from(message, PORTS_AT)
    attributes = message[ATTRIBUTES_AT:]
    while len(attributes) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(attributes)
        value = attributes[ATTRIBUTE.size : length]
        if kind == INFO and len(value) >= COUNTS_AT + COUNTS.size:
            moved = TcpBytes(*COUNTS.unpack_from(value, COUNTS_AT))
            yield TcpConnection(inode, (here, there), moved)
        attributes = attributes[_aligned(length) :]


def _aligned(length: int) -> int:
    return -(-length // 4) * 4
