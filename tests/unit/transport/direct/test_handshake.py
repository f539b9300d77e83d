"""Handshakes: only two sides with the same secret and protocol succeed."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import check_message, raises
from tests.unit.transport.direct.wire import SocketPair
from tfps.transport.direct.connection import ConnectionLost
from tfps.transport.direct.handshake import (
    GREETING,
    LENGTH,
    MAGIC,
    NONCE_BYTES,
    HandshakeError,
    authenticate_client,
    authenticate_server,
)
from tfps.transport.direct.hello import HELLO_BYTES, Hello
from tfps.transport.message import PROTOCOL

HELLO = Hello(job=1, worker=2, incarnation=3, plan="a plan")
GOOD_GREETING = GREETING.pack(MAGIC, PROTOCOL, bytes(NONCE_BYTES))
HI = HELLO.to_bytes()


def _soon() -> float:
    return time.monotonic() + 60


def _meet(pair: SocketPair, *, server: bytes, client: bytes) -> list[object]:
    """Run a handshake; return the result of each side: the hello, None, or its error."""
    with ThreadPoolExecutor(2) as pool:
        sides = (
            pool.submit(
                authenticate_server, pair[0], find_secret=lambda _: server, deadline_s=_soon()
            ),
            pool.submit(authenticate_client, pair[1], HELLO, secret=client, deadline_s=_soon()),
        )
        return [side.exception() or side.result() for side in sides]


def test_one_secret_is_an_agreement(pair: SocketPair) -> None:
    assert _meet(pair, server=b"secret", client=b"secret") == [HELLO, None]


def test_another_secret_is_refused_on_both_sides(pair: SocketPair) -> None:
    server, client = _meet(pair, server=b"secret", client=b"Secret")
    assert isinstance(server, HandshakeError)
    assert isinstance(client, HandshakeError)
    check_message(str(server), "wrong secret", remedy="TFPS_JOB_SECRET")
    assert "TFPS_JOB_SECRET" in str(client)


def _record(sent: list[bytes], sock: socket.socket, forward: socket.socket) -> None:
    while data := sock.recv(65536):
        sent.append(data)
        forward.sendall(data)
    forward.shutdown(socket.SHUT_WR)


def test_what_was_heard_cannot_be_said_again() -> None:
    """A stranger records a whole handshake and repeats the client's part."""
    client, middle_client = socket.socketpair()
    middle_server, server = socket.socketpair()
    sent: list[bytes] = []
    with ThreadPoolExecutor(4) as pool:
        pool.submit(_record, sent, middle_client, middle_server)
        pool.submit(_record, [], middle_server, middle_client)
        served = pool.submit(
            authenticate_server, server, find_secret=lambda _: b"secret", deadline_s=_soon()
        )
        authenticate_client(client, HELLO, secret=b"secret", deadline_s=_soon())
        assert served.result() == HELLO
        client.shutdown(socket.SHUT_WR)
        server.shutdown(socket.SHUT_WR)
    for sock in (client, middle_client, middle_server, server):
        sock.close()
    ours, theirs = socket.socketpair()
    theirs.sendall(b"".join(sent))
    with raises(HandshakeError, "wrong secret"):
        authenticate_server(ours, find_secret=lambda _: b"secret", deadline_s=_soon())
    ours.close()
    theirs.close()


def test_a_server_without_the_secret_cannot_pretend(pair: SocketPair) -> None:
    """It accepts every client and sends the client's own proof back."""
    with ThreadPoolExecutor(1) as pool:
        side = pool.submit(
            authenticate_client, pair[0], HELLO, secret=b"secret", deadline_s=_soon()
        )
        pair[1].sendall(GOOD_GREETING)
        size = GREETING.size + LENGTH.size + len(HELLO.to_bytes()) + 32
        said = b""
        while len(said) < size:
            said += pair[1].recv(65536)
        pair[1].sendall(b"\x01" + said[-32:])
        with raises(HandshakeError, "wrong secret", remedy="TFPS_JOB_SECRET"):
            side.result()


@pytest.mark.parametrize(
    ("data", "key", "received"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "greeting", b"GET / HT"),
        (GREETING.pack(MAGIC, PROTOCOL + 1, bytes(32)), "protocol", PROTOCOL + 1),
        (GOOD_GREETING + LENGTH.pack(HELLO_BYTES + 1), "hello", HELLO_BYTES + 1),
        (GOOD_GREETING + LENGTH.pack(4) + b"null", "hello", "None"),
        (GOOD_GREETING + LENGTH.pack(len(HI)) + HI + bytes(32), "secret", "wrong"),
    ],
)
def test_strangers_are_refused_with_the_reason(
    pair: SocketPair, data: bytes, key: str, received: object
) -> None:
    pair[1].sendall(data)
    with raises(HandshakeError, key, received=received):
        authenticate_server(pair[0], find_secret=lambda _: b"secret", deadline_s=_soon())


@given(
    data=st.binary(max_size=100) | st.binary(max_size=100).map(lambda tail: GOOD_GREETING + tail)
)
def test_any_bytes_are_refused(data: bytes) -> None:
    for side in (
        lambda sock: authenticate_server(sock, find_secret=lambda _: b"secret", deadline_s=_soon()),
        lambda sock: authenticate_client(sock, HELLO, secret=b"secret", deadline_s=_soon()),
    ):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionLost):
                side(ours)


@pytest.mark.parametrize("said", [b"", MAGIC[:3], GOOD_GREETING, GOOD_GREETING + LENGTH.pack(9)])
def test_who_says_too_little_in_time_is_left(pair: SocketPair, said: bytes) -> None:
    pair[1].sendall(said)
    with raises(ConnectionLost, "handshake", received="in time") as caught:
        authenticate_server(
            pair[0], find_secret=lambda _: b"secret", deadline_s=time.monotonic() + 0.02
        )
    assert not isinstance(caught.value, HandshakeError)  # trying again may help


def test_one_byte_at_a_time_does_not_extend_the_deadline(pair: SocketPair) -> None:
    with ThreadPoolExecutor(1) as pool:
        deadline_s = time.monotonic() + 0.02
        side = pool.submit(
            authenticate_server, pair[0], find_secret=lambda _: b"secret", deadline_s=deadline_s
        )
        pair[1].sendall(GOOD_GREETING + LENGTH.pack(HELLO_BYTES))
        pair[1].setblocking(False)
        while not side.done():  # the hello would take seconds
            with contextlib.suppress(BlockingIOError):  # the server has stopped reading
                pair[1].send(b"x")
        with raises(ConnectionLost, "handshake", received="in time"):
            side.result()


def test_after_the_deadline_nothing_is_read(pair: SocketPair) -> None:
    pair[1].sendall(GOOD_GREETING)
    with raises(ConnectionLost, "handshake", received="in time"):
        authenticate_client(pair[0], HELLO, secret=b"secret", deadline_s=time.monotonic() - 1)
    assert pair[0].recv(1000) == GOOD_GREETING


def test_a_peer_that_left_is_lost(pair: SocketPair) -> None:
    pair[1].close()
    with pytest.raises(ConnectionLost):
        authenticate_server(pair[0], find_secret=lambda _: b"secret", deadline_s=_soon())


def test_a_client_of_tls_at_a_plain_server_is_refused(pair: SocketPair) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(
            authenticate_server, pair[0], find_secret=lambda _: b"secret", deadline_s=_soon()
        )
        with context.wrap_socket(pair[1], do_handshake_on_connect=False) as encrypted:
            with raises(HandshakeError, "TLS"):
                authenticate_client(encrypted, HELLO, secret=b"secret", deadline_s=_soon())
        assert isinstance(served.exception(), ConnectionLost)


def test_a_job_that_nobody_knows_is_refused(pair: SocketPair) -> None:
    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(
            authenticate_client, pair[1], HELLO, secret=b"secret", deadline_s=_soon()
        )
        with raises(HandshakeError, "job", received=HELLO.job):
            authenticate_server(pair[0], find_secret=lambda _: None, deadline_s=_soon())
        with raises(HandshakeError, "refused", remedy="server's log"):
            client.result()
