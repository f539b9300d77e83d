"""Connections: whole messages in order, or one error and nothing after it."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.messages import check_message, raises
from tests.unit.transport.direct.wire import (
    FIELDS,
    LIMITS,
    SocketPair,
    assert_equal,
    connected,
    encoded,
    message,
    on_lines,
    reset,
    segments,
)
from tfps.transport.direct.connection import Connection, ConnectionLost
from tfps.transport.direct.frame import Frame, FrameError, FrameLimits
from tfps.transport.direct.stream import SocketStream

SMALL = encoded(message(2, 5))
# More than the system buffers.
ENDLESS = (*message()[:2], np.zeros(30_000_000, np.uint8))


@pytest.fixture
def ends(pair: SocketPair) -> Iterator[tuple[Connection, Connection]]:
    """Two connections to each other, in chunks of 10 kB."""
    left, right = (Connection(sock, peer="a peer", chunk_bytes=10_000) for sock in pair)
    yield left, right
    left.close()
    right.close()


def _wait_until_blocked(thread: threading.Thread) -> None:
    """Wait until the thread sleeps in a call of the system."""
    state = Path(f"/proc/self/task/{thread.native_id}/stat")
    while state.read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.001)


@pytest.mark.parametrize("payload_bytes", [0, 1, 63, 64, 9_000, 10_000, 10_001, 1_234_567])
@pytest.mark.parametrize("ids", [0, 1, 100, 20_011])
def test_every_size_arrives(
    ends: tuple[Connection, Connection], ids: int, payload_bytes: int
) -> None:
    left, right = ends
    sent = message(ids, payload_bytes)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(left.send, *sent)
        received = right.receive(LIMITS)
        sending.result()
    assert_equal(received, sent)
    assert all(array.ctypes.data % 64 == 0 for array in received if len(array))


def test_the_bytes_are_those_of_the_format(pair: SocketPair) -> None:
    connection = Connection(pair[0], peer="a peer")
    sent = message(3, 17)
    connection.send(*sent)
    connection.close()
    assert pair[1].recv(1000) == encoded(sent)


@pytest.mark.parametrize("payload_bytes", [0, 17])
def test_segments_are_the_beginning_of_the_payload(pair: SocketPair, payload_bytes: int) -> None:
    """Each lies on lines of its own, an empty one too; what follows them is not filled up."""
    connection = Connection(pair[0], peer="a peer")
    header, ids, payload = message(3, payload_bytes)
    connection.send(header, ids, payload, *segments())
    connection.close()
    whole = np.concatenate([on_lines(segments()), payload])
    assert pair[1].recv(10_000) == encoded((header, ids, whole))


@pytest.mark.parametrize("items", [1, 5_000, 100_000])
def test_segments_of_every_size_arrive(ends: tuple[Connection, Connection], items: int) -> None:
    """Some messages are larger than a chunk, some have more segments than a call takes buffers."""
    left, right = ends
    many = [np.arange(number, number + items % 9_973, dtype=np.int32) for number in range(700)]
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(left.send, *message(2, 9), *many)
        received = right.receive(LIMITS)
        sending.result()
    header, ids, payload = message(2, 9)
    assert_equal(received, (header, ids, np.concatenate([on_lines(many), payload])))


def test_segments_are_not_copied(pair: SocketPair) -> None:
    connection = Connection(pair[0], peer="a peer")
    large = [np.zeros(1_000_003, np.float32) for _ in range(3)]
    arrives = bytearray(encoded((*message()[:2], on_lines(large))))
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(SocketStream(pair[1]).receive_all, memoryview(arrives))
        tracemalloc.start()
        try:
            connection.send(*message(), *large)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        received.result()
    connection.close()
    assert peak_bytes < 10**5


def test_messages_keep_their_order(ends: tuple[Connection, Connection]) -> None:
    left, right = ends
    sizes = [(number % 3, number * 7 % 50) for number in range(30)]
    for number, size in enumerate(sizes):
        left.send(*message(*size, first=number))
    for number, size in enumerate(sizes):
        assert_equal(right.receive(LIMITS), message(*size, first=number))


def test_both_ends_send_at_once(ends: tuple[Connection, Connection]) -> None:
    """More than the kernel buffers in both directions: each end has to read while it writes."""
    sent = message(10, 3_000_000)
    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(end.send, *sent) for end in ends]
        receiving = [pool.submit(end.receive, LIMITS) for end in ends]
        for sender in sending:
            sender.result()
        for receiver in receiving:
            assert_equal(receiver.result(), sent)


def test_messages_of_several_threads_are_whole(ends: tuple[Connection, Connection]) -> None:
    left, right = ends
    messages = {first: message(5, 200_000, first=first) for first in range(4)}
    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(left.send, *sent) for sent in messages.values()]
        for _ in range(4):
            received = right.receive(LIMITS)
            assert_equal(received, messages.pop(int(received.header[0])))
        for call in sending:
            call.result()
    assert messages == {}


def test_bytes_that_arrive_one_by_one_are_a_message(pair: SocketPair) -> None:
    connection = Connection(pair[0], peer="a peer")
    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(connection.receive, LIMITS)
        for place in range(len(SMALL)):
            pair[1].send(SMALL[place : place + 1])
        assert_equal(received.result(), message(2, 5))
    connection.close()


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_an_end_at_any_byte_is_a_lost_connection(
    family: socket.AddressFamily, end: Callable[[socket.socket], None]
) -> None:
    for size in range(len(SMALL)):
        ours, theirs = connected(family)
        connection = Connection(ours, peer="worker 3")
        theirs.sendall(SMALL[:size])
        end(theirs)
        with raises(ConnectionLost, "worker 3"):
            connection.receive(LIMITS)
        assert connection.closed
        for use in (lambda c: c.receive(LIMITS), lambda c: c.send(*message())):
            with pytest.raises(ConnectionLost):
                use(connection)


def test_an_end_at_any_byte_of_segments_is_a_lost_connection(pair: SocketPair) -> None:
    """Whatever of a push has arrived when its sender dies, there is no message."""
    sender = Connection(pair[0], peer="a peer")
    sender.send(*message(2, 5), *segments())
    sender.close()
    data = pair[1].recv(10_000)
    for size in range(len(data)):
        ours, theirs = socket.socketpair()
        connection = Connection(ours, peer="worker 3")
        theirs.sendall(data[:size])
        theirs.close()
        with pytest.raises(ConnectionLost):
            connection.receive(LIMITS)
        assert connection.closed


def test_a_peer_that_ends_while_it_is_sent_to_is_a_lost_connection(pair: SocketPair) -> None:
    connection = Connection(pair[0], peer="a peer")
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(connection.send, *ENDLESS)
        pair[1].recv(1)
        reset(pair[1])
        with pytest.raises(ConnectionLost):
            sending.result()
    assert connection.closed


@pytest.mark.parametrize("blocked_in", ["receive", "send"])
def test_close_wakes_a_blocked_call(ends: tuple[Connection, Connection], blocked_in: str) -> None:
    left, _ = ends
    errors: list[Exception] = []

    def block() -> None:
        try:
            if blocked_in == "receive":
                left.receive(LIMITS)
            else:
                left.send(*ENDLESS)
        except ConnectionLost as error:
            errors.append(error)

    thread = threading.Thread(target=block)
    thread.start()
    _wait_until_blocked(thread)
    left.close()
    thread.join()
    (error,) = errors
    check_message(str(error), "the connection", received="this task closed it")


def test_close_from_many_threads_and_again(ends: tuple[Connection, Connection]) -> None:
    left, right = ends
    with ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(left.close) for _ in range(50)]:
            call.result()
    left.close()
    assert left.closed
    with pytest.raises(ConnectionLost):
        right.receive(LIMITS)


@given(data=st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: SMALL[:24] + tail))
def test_any_bytes_are_messages_or_one_error(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours, peer="a stranger")
    theirs.sendall(data)
    theirs.close()
    read = b""
    try:
        while True:
            read += encoded(connection.receive(FrameLimits(FIELDS, 100, 1000)))
    except (FrameError, ConnectionLost):
        assert connection.closed
    assert data.startswith(read)


@pytest.mark.parametrize(
    ("frame", "key"), [(Frame(FIELDS, 2, 10**9), "payload"), (Frame(FIELDS, 10**9, 5), "ids")]
)
def test_nothing_above_the_limits_is_allocated(pair: SocketPair, frame: Frame, key: str) -> None:
    connection = Connection(pair[0], peer="a peer")
    pair[1].sendall(frame.pack() + bytes(100))
    tracemalloc.start()
    try:
        with raises(FrameError, key, received=10**9):
            connection.receive(LIMITS)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 10**6
    assert connection.closed


def test_a_steady_exchange_allocates_nothing(ends: tuple[Connection, Connection]) -> None:
    left, right = ends
    sent = message(40, 5_000)
    places = set()
    for _ in range(20):
        left.send(*sent)
        received = right.receive(LIMITS)
        places.add(tuple(array.ctypes.data for array in received))
        del received
    assert len(places) == 1


def test_what_is_held_is_not_overwritten(ends: tuple[Connection, Connection]) -> None:
    left, right = ends
    kept = []
    for first in range(20):
        left.send(*message(40, 5_000, first=first))
        received = right.receive(LIMITS)
        # As a reader does that unpacks: views only, of other dtypes.
        kept.append((received.header[:1], received.ids[1:], received.payload[8:].view(np.int64)))
    for first, (header, ids, payload) in enumerate(kept):
        expected = message(40, 5_000, first=first)
        np.testing.assert_array_equal(header, expected[0][:1])
        np.testing.assert_array_equal(ids, expected[1][1:])
        np.testing.assert_array_equal(payload, expected[2][8:].view(np.int64))


@pytest.mark.parametrize(
    ("place", "wrong", "key"),
    [
        (0, np.zeros(3, np.int32), "header"),
        (1, np.zeros((2, 2), np.int64), "ids"),
        (1, np.zeros(4, np.int64)[::2], "ids"),
        (2, np.zeros(4, np.float32), "payload"),
        (3, np.zeros([4, 4], np.float32)[:, ::2], "segments"),
        (4, np.zeros([4, 3], np.float32).T, "segments"),
    ],
)
def test_arguments_that_do_not_fit_send_nothing(
    ends: tuple[Connection, Connection], place: int, wrong: Any, key: str
) -> None:
    left, right = ends
    arrays: list[Any] = [*message(2, 5), np.ones(3), np.ones(5)]
    arrays[place] = wrong
    with raises(ValueError, key, received=wrong.dtype, remedy="contiguous"):
        left.send(*arrays)
    left.send(*message(2, 5))
    assert_equal(right.receive(LIMITS), message(2, 5))
