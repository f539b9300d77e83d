"""Streams: all bytes in order, also where the system takes or gives less than it was asked for."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given

from tfps.transport.direct.stream import MAX_BUFFERS, RECORD_BYTES, SocketStream, TlsStream


class ShortSendSocket(socket.socket):
    """A socket that takes at most `most_bytes` bytes per call, as after a signal."""

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
    with ShortSendSocket(fileno=left.detach()) as sender, right:
        sender.most_bytes = most_bytes
        SocketStream(sender, chunk_bytes=chunk_bytes).send(parts, len(data))
        received = bytearray(len(data))
        SocketStream(right, chunk_bytes=chunk_bytes).receive_all(memoryview(received))
        right.setblocking(False)
        assert received == data
        assert _waiting(right) == b""


@pytest.mark.parametrize("chunk_bytes", [10**6, 700])
def test_more_buffers_than_one_call_takes(chunk_bytes: int) -> None:
    parts = [bytes([number % 251]) * (number % 3) for number in range(3 * MAX_BUFFERS)]
    data = b"".join(parts)
    left, right = socket.socketpair()
    with left, right:
        SocketStream(left, chunk_bytes=chunk_bytes).send(parts, len(data))
        received = bytearray(len(data))
        SocketStream(right).receive_all(memoryview(received))
        assert received == data


@pytest.mark.parametrize("most_bytes", [1, 7, 1000])
def test_arrays_of_any_shape_and_dtype_are_sent(most_bytes: int) -> None:
    bfloat16 = tf.bfloat16.as_numpy_dtype
    arrays: list[Any] = [
        np.ones([], np.float64),
        np.zeros([0, 4], np.float32),
        np.arange(6).reshape(2, 3).astype(bfloat16),
        np.array([[True], [False]]),
        np.arange(3, dtype=np.float16),
    ]
    data = b"".join(array.tobytes() for array in arrays)
    left, right = socket.socketpair()
    with ShortSendSocket(fileno=left.detach()) as sender, right:
        sender.most_bytes = most_bytes
        SocketStream(sender).send(arrays, len(data))
        assert right.recv(1000, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == data


class Records:
    """A stand-in for a TLS socket that notes the data of each call."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data: Any) -> None:
        if len(data):
            self.sent.append(bytes(data))

    def recv_into(self, _: Any) -> int:
        raise NotImplementedError


@given(
    sizes=st.lists(st.integers(0, 200) | st.integers(0, 3 * RECORD_BYTES), max_size=40),
    chunk_bytes=st.integers(RECORD_BYTES, 4 * RECORD_BYTES),
)
def test_small_parts_share_records(sizes: list[int], chunk_bytes: int) -> None:
    parts = [bytes([k]) * size for k, size in enumerate(sizes)]
    data, records = b"".join(parts), Records()
    TlsStream(records, chunk_bytes=chunk_bytes).send(parts, len(data))  # type: ignore[arg-type]
    assert b"".join(records.sent) == data
    # Of two records one after the other that are shorter than a record, the second is the
    # beginning or the end of a part that is longer.
    large = sum(-(-size // chunk_bytes) for size in sizes if size > RECORD_BYTES)
    assert len(records.sent) <= 2 * len(data) // RECORD_BYTES + 2 * large + 1


def _waiting(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1000)
    except BlockingIOError:
        return b""
