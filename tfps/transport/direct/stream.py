"""Sends and receives bytes over a connected socket, plain or encrypted, in few system calls."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tfps.transport.chunk import CHUNK_BYTES

# The size of a TLS record; smaller parts are joined, so that a small message is one record.
RECORD_BYTES = 2**14
# The most buffers that Linux accepts in one call.
MAX_BUFFERS = os.sysconf("SC_IOV_MAX")


class Stream(Protocol):
    """Sends and receives a connection's bytes; methods raise OSError if it is lost."""

    duplex: bool  # whether one thread may send while another receives

    def send(self, parts: Sequence[Any], size_bytes: int) -> None:
        """Send contiguous buffers one after the other, ``size_bytes`` in total."""

    def receive_some(self, view: memoryview) -> int:
        """Receive at least one byte into the start of a view, and return the number of bytes."""

    def receive_all(self, view: memoryview) -> None:
        """Receive bytes until a view is full."""


class SocketStream:
    """The stream of a plain socket: one `sendmsg` for all parts, one `recv_into` per buffer."""

    duplex = True

    def __init__(self, sock: socket.socket, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._sendmsg = sock.sendmsg
        self._recv_into = sock.recv_into
        self._chunk_bytes = chunk_bytes

    def send(self, parts: Sequence[Any], size_bytes: int) -> None:
        sent = 0
        if size_bytes <= self._chunk_bytes and len(parts) <= MAX_BUFFERS:
            sent = self._sendmsg(parts)
        if sent != size_bytes:
            self._send_rest(parts, sent)

    def _send_rest(self, parts: Sequence[Any], sent: int) -> None:
        left = deque(as_bytes(part) for part in parts)
        while left:
            if sent >= len(left[0]):
                sent -= len(left.popleft())
                continue
            left[0] = left[0][sent:]
            sent = self._sendmsg(self._next_buffers(left))

    def _next_buffers(self, left: deque[memoryview]) -> list[memoryview]:
        """Return the buffers to send with one call."""
        views, room = [], self._chunk_bytes
        for view in itertools.islice(left, MAX_BUFFERS):
            views.append(view[:room])
            room -= len(views[-1])
            if not room:
                break
        return views

    def receive_some(self, view: memoryview) -> int:
        return self._recv_into(view) or _raise_ended()

    def receive_all(self, view: memoryview) -> None:
        received = 0
        while received < len(view):
            chunk = view[received : received + self._chunk_bytes]
            received += self._recv_into(chunk, 0, socket.MSG_WAITALL) or _raise_ended()


class TlsStream:
    """The stream of a TLS socket, which lacks `sendmsg` and reads one record per call."""

    duplex = False  # Python calls OpenSSL's connection, which is one object, without a lock

    def __init__(self, sock: ssl.SSLSocket, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._sendall = sock.sendall
        self._recv_into = sock.recv_into
        self._chunk_bytes = chunk_bytes

    def send(self, parts: Sequence[Any], size_bytes: int) -> None:
        if size_bytes <= RECORD_BYTES:
            self._sendall(b"".join(parts))
            return
        small = bytearray()
        for part in parts:
            view = as_bytes(part)
            if len(small) + len(view) > RECORD_BYTES:
                self._sendall(small)
                small.clear()
            if len(view) <= RECORD_BYTES:
                small += view
                continue
            for begin in range(0, len(view), self._chunk_bytes):
                self._sendall(view[begin : begin + self._chunk_bytes])
        self._sendall(small)

    def receive_some(self, view: memoryview) -> int:
        return self._recv_into(view) or _raise_ended()

    def receive_all(self, view: memoryview) -> None:
        received = 0
        while received < len(view):
            received += self._recv_into(view[received:]) or _raise_ended()


def make_stream(sock: socket.socket, *, chunk_bytes: int = CHUNK_BYTES) -> Stream:
    """Return the stream of a connected socket."""
    if isinstance(sock, ssl.SSLSocket):
        return TlsStream(sock, chunk_bytes=chunk_bytes)
    return SocketStream(sock, chunk_bytes=chunk_bytes)


def as_bytes(part: Any) -> memoryview:
    """Return a view of a buffer's bytes, also of an empty one or of a dtype that NumPy defines."""
    data: Any = part.reshape(-1).view(np.uint8) if isinstance(part, np.ndarray) else part
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _raise_ended() -> int:
    raise ConnectionResetError("the peer closed it")
