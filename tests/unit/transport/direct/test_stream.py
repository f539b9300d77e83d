"""Streams: all bytes in order, also where the system takes or gives less than it was asked for."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tfps.transport.direct.stream import SocketStream


class Reluctant(socket.socket):
    """A socket that takes at most so many bytes per call, as after a signal."""

    most_bytes = 1

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:
        return self.send(b"".join(buffers)[: self.most_bytes])


@given(
    parts=st.lists(st.binary(max_size=30), min_size=1, max_size=5),
    most_bytes=st.integers(1, 40),
    chunk_bytes=st.integers(1, 200),
)
def test_what_the_system_left_over_is_sent(
    parts: list[bytes], most_bytes: int, chunk_bytes: int
) -> None:
    left, right = socket.socketpair()
    data = b"".join(parts)
    with Reluctant(fileno=left.detach()) as sender, right:
        sender.most_bytes = most_bytes
        SocketStream(sender, chunk_bytes=chunk_bytes).send(parts, len(data))
        received = bytearray(len(data))
        SocketStream(right, chunk_bytes=chunk_bytes).receive_all(memoryview(received))
        right.setblocking(False)
        assert received == data
        assert _waiting(right) == b""


def _waiting(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1000)
    except BlockingIOError:
        return b""
