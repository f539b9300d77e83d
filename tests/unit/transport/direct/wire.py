"""Messages as arrays and as bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any

import numpy as np

from tfps.transport.direct.connection import ReceivedMessage
from tfps.transport.direct.encryption import Encryption
from tfps.transport.direct.frame import Frame, FrameLimits

SocketPair = tuple[socket.socket, socket.socket]

FIELDS = 3
LIMITS = FrameLimits(header_fields=FIELDS, max_ids=10**6, max_payload_bytes=10**8)


def connected(family: socket.AddressFamily) -> SocketPair:
    """Two sockets of one connection."""
    if family == socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        return client, server.accept()[0]


def message(ids: int = 0, payload_bytes: int = 0, *, first: int = 7) -> tuple[Any, Any, Any]:
    """Arrays whose content depends on the place of each byte."""
    return (
        np.arange(first, first + FIELDS, dtype=np.int64),
        np.arange(ids, dtype=np.int64) * 3 - first,
        (np.arange(payload_bytes, dtype=np.uint32) * 2_654_435_761 >> 13).astype(np.uint8),
    )


def segments() -> list[Any]:
    """Arrays of several dtypes and shapes, two of them empty, one of exactly 64 bytes."""
    return [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.zeros([0, 3], np.float32),
        np.arange(100, dtype=np.int64),
        np.ones([], np.float64),
        np.array([True, False, True]),
        np.arange(32, dtype=np.float16),
        np.zeros([0], np.int8),
    ]


def on_lines(arrays: list[Any]) -> Any:
    """The bytes of arrays, each filled up to a multiple of 64 bytes, at least 64."""
    padded = (array.tobytes().ljust(max(-(-array.nbytes // 64), 1) * 64, b"\0") for array in arrays)
    return np.frombuffer(b"".join(padded), np.uint8)


def encoded(arrays: tuple[Any, Any, Any]) -> bytes:
    """The bytes of a message, as the format says: little-endian, without gaps."""
    header, ids, payload = arrays
    prefix = Frame(len(header), len(ids), len(payload)).pack()
    numbers = [*header.tolist(), *ids.tolist()]
    return prefix + struct.pack(f"<{len(numbers)}q", *numbers) + payload.tobytes()


def assert_equal(received: ReceivedMessage, sent: tuple[Any, Any, Any]) -> None:
    for found, expected in zip(list[Any](received), sent, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


class NotedSockets:
    """An encryption that notes the sockets of the connections.

    Args:
        encryption: of them.
    """

    def __init__(self, encryption: Encryption) -> None:
        self._encryption = encryption
        self.sockets: list[socket.socket] = []

    def accept(self, sock: socket.socket) -> socket.socket:
        return self._note(self._encryption.accept(sock))

    def connect(self, sock: socket.socket) -> socket.socket:
        return self._note(self._encryption.connect(sock))

    def _note(self, sock: socket.socket) -> socket.socket:
        self.sockets.append(sock)
        return sock


def reset(sock: socket.socket) -> None:
    """Close with a reset instead of an orderly end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_to_the_end(sock: socket.socket) -> None:
    """Until the peer has closed its side, with a reset or without."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65536):
            pass
