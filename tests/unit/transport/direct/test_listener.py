"""Listeners: the job's tasks get in from everywhere, strangers do not, and nothing is left."""

from __future__ import annotations

import logging
import os
import queue
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.messages import check_message, raises
from tests.unit.transport.direct.wire import (
    LIMITS,
    NotedSockets,
    assert_equal,
    message,
    read_to_the_end,
    reset,
)
from tfps.errors import ConfigError
from tfps.transport.direct.connection import Connection, ConnectionLost
from tfps.transport.direct.connector import connect
from tfps.transport.direct.encryption import Encryption, Plain
from tfps.transport.direct.endpoint import Endpoint
from tfps.transport.direct.handshake import HandshakeError
from tfps.transport.direct.hello import Hello
from tfps.transport.direct.listener import MAX_HANDSHAKES, Listener

HELLO = Hello(job=1, worker=2, incarnation=3)
SECRET = b"secret"
PLAIN = Plain()


class Server:
    """A listener and what it handed out."""

    def __init__(
        self,
        *,
        host: str = "",
        port: int = 0,
        handshake_s: float = 60,
        encryption: Encryption = PLAIN,
    ) -> None:
        self.arrived: queue.Queue[tuple[Connection, Hello]] = queue.Queue()
        self.listener = Listener(
            host=host,
            port=port,
            find_secret=lambda _: SECRET,
            on_connection=lambda *arrived: self.arrived.put(arrived),
            encryption=encryption,
            handshake_s=handshake_s,
        )
        self.endpoint = self.listener.endpoint("localhost")
        self.tcp = Endpoint("127.0.0.1", self.listener.port)

    def close(self) -> None:
        self.listener.close()
        while not self.arrived.empty():
            self.arrived.get()[0].close()

    def unknown_client(self) -> socket.socket:
        """A connection whose server side has spoken, so that a thread waits for an answer."""
        sock = socket.create_connection((self.tcp.host, self.tcp.port))
        assert sock.recv(1)
        return sock


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def _connect(endpoint: Endpoint, hello: Hello = HELLO, secret: bytes = SECRET) -> Connection:
    return connect(endpoint, hello, secret=secret, encryption=Plain(), timeout_s=60)


def _assert_talks(server: Server, client: Connection, hello: Hello = HELLO) -> Connection:
    """Both directions work; the server's side."""
    connection, heard = server.arrived.get()
    assert heard == hello
    client.send(*message(3, 1000))
    assert_equal(connection.receive(LIMITS), message(3, 1000))
    connection.send(*message(0, 10))
    assert_equal(client.receive(LIMITS), message(0, 10))
    client.close()
    connection.close()
    return connection


def test_a_task_of_this_machine_comes_through_the_unix_socket(server: Server) -> None:
    client = _connect(server.endpoint)
    assert "unix socket" in client.peer
    assert _assert_talks(server, client).peer == "worker 2 at this machine"


@pytest.mark.parametrize(
    "change", [{"machine": "another"}, {"unix_name": "tfps-gone"}, {"unix_name": ""}]
)
def test_others_come_over_tcp(server: Server, change: dict[str, Any]) -> None:
    client = _connect(replace(server.endpoint, **change))
    assert client.peer == f"localhost:{server.listener.port}"
    assert "127.0.0.1 port " in _assert_talks(server, client).peer.replace("::1", "127.0.0.1")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["", "::1"])
def test_ipv6_addresses_work(host: str) -> None:
    try:
        server = Server(host=host)
    except ConfigError as error:
        pytest.skip(f"no IPv6 on the loopback device: {error}")
    client = _connect(Endpoint("::1", server.listener.port))
    assert client.peer == f"[::1]:{server.listener.port}"
    _assert_talks(server, client)
    server.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_listener_may_have_a_host(host: str) -> None:
    server = Server(host=host)
    _assert_talks(server, _connect(Endpoint(host, server.listener.port)))
    server.close()


def test_sockets_hold_a_message_and_notice_a_vanished_host() -> None:
    noted = NotedSockets(PLAIN)
    server = Server(encryption=noted)
    client = connect(server.tcp, HELLO, secret=SECRET, encryption=noted, timeout_s=60)
    connection, _ = server.arrived.get()
    assert len(noted.sockets) == 2
    for sock in noted.sockets:
        assert sock.gettimeout() is None
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
    client.close()
    connection.close()
    server.close()


def test_clients_come_at_once(server: Server) -> None:
    hellos = [replace(HELLO, worker=worker) for worker in range(20)]
    with ThreadPoolExecutor(8) as pool:
        endpoints = [server.endpoint, server.tcp] * 10
        clients = dict(zip(hellos, pool.map(_connect, endpoints, hellos), strict=True))
    for _ in hellos:
        connection, hello = server.arrived.get()
        client = clients.pop(hello)
        client.send(*message(first=hello.worker))
        assert connection.receive(LIMITS).header[0] == hello.worker
        client.close()
        connection.close()


def _say_garbage(sock: socket.socket) -> None:
    sock.sendall(b"GET / HTTP/1.1\r\nHost: tfps\r\n\r\n" * 100)


def _say_half_a_hello(sock: socket.socket) -> None:
    from tests.unit.transport.direct.test_handshake import GOOD_GREETING

    sock.sendall(GOOD_GREETING + b"\x09")
    sock.shutdown(socket.SHUT_WR)


def _leave(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("act", [_say_garbage, _say_half_a_hello, _leave, reset])
def test_strangers_are_refused_and_logged_once(
    server: Server, act: Callable[[socket.socket], None], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with server.unknown_client() as unknown_client:
            act(unknown_client)
            if unknown_client.fileno() >= 0:
                read_to_the_end(unknown_client)
            while not caplog.records:
                time.sleep(0.001)
    _assert_talks(server, _connect(server.tcp))
    server.close()
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert "refused a connection from" in caplog.messages[0]
    assert "127.0.0.1" in caplog.messages[0]


def test_a_stranger_that_says_nothing_is_closed_in_time(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(handshake_s=0.02)
    with server.unknown_client() as unknown_client:
        read_to_the_end(unknown_client)
    server.close()
    check_message(caplog.text, "handshake", received="in time")


def test_another_secret_is_refused_and_logged(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    for endpoint in (server.endpoint, server.tcp, server.tcp):
        with raises(HandshakeError, "refused", remedy="TFPS_JOB_SECRET"):
            _connect(endpoint, secret=b"guess")
    server.close()
    assert server.arrived.empty()
    refused = sorted(caplog.messages)
    assert len(refused) == 2
    assert refused[0].startswith("refused a connection from ")
    check_message(refused[1], "this machine", received="wrong secret")


def test_many_strangers_do_not_keep_a_task_out(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest of them is closed for it."""
    unknown_clients = [server.unknown_client() for _ in range(MAX_HANDSHAKES)]
    _assert_talks(server, _connect(server.tcp))
    read_to_the_end(unknown_clients[0])
    check_message(caplog.text, "handshakes", received=MAX_HANDSHAKES)
    for unknown_client in unknown_clients:
        unknown_client.close()


def test_a_listener_without_descriptors_goes_on_later(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        # The next descriptor would have this number or a higher one.
        with open(os.devnull) as lowest:
            limit = lowest.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            client.connect((server.tcp.host, server.tcp.port))
            while not caplog.records:
                time.sleep(0.001)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert client.recv(1)
    check_message(caplog.messages[0], "a connection", received="Too many open files")


def test_a_listener_without_threads_goes_on_later(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    before = threading.stack_size(2**46)  # no machine has so much memory
    try:
        with socket.create_connection((server.tcp.host, server.tcp.port)) as client:
            assert client.recv(1) == b""
    finally:
        threading.stack_size(before)
    assert "can't start new thread" in caplog.text
    _assert_talks(server, _connect(server.tcp))


def test_nobody_listens() -> None:
    server = Server()
    server.close()
    for endpoint in (server.endpoint, server.tcp):
        with raises(ConnectionLost, "cannot connect", received=endpoint.port) as caught:
            _connect(endpoint)
        assert not isinstance(caught.value, HandshakeError)


def test_a_host_name_that_does_not_exist() -> None:
    with raises(ConnectionLost, "cannot connect", received="no host:7000"):
        _connect(Endpoint("no host", 7000))


def test_a_server_that_never_answers() -> None:
    """Such a server may be stopped: the system accepts connections for it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint("127.0.0.1", silent.getsockname()[1])
        with raises(ConnectionLost, "handshake", received="in time"):
            connect(endpoint, HELLO, secret=SECRET, encryption=Plain(), timeout_s=0.02)


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(server: Server) -> None:
    port = server.listener.port
    with raises(ConfigError, "TFPS_DATA_PORT", received=f"port {port}", remedy="free port"):
        Server(port=port)


def test_a_host_of_another_machine_is_an_error() -> None:
    with raises(ConfigError, "TFPS_DATA_PORT", received="port 0 of 192.0.2.1"):
        Server(host="192.0.2.1")


def test_a_port_is_free_again_after_close() -> None:
    first = Server()
    _assert_talks(first, _connect(first.tcp))
    first.close()
    second = Server(port=first.listener.port)
    _assert_talks(second, _connect(second.tcp))
    second.close()


def test_close_ends_what_is_going_on_and_keeps_what_was_handed_out() -> None:
    """The fixture of this folder counts threads and descriptors."""
    server = Server()
    client = _connect(server.endpoint)
    connection, _ = server.arrived.get()
    with server.unknown_client() as silent, server.unknown_client() as half:
        half.sendall(b"tfps")
        server.close()
        server.close()
        read_to_the_end(silent)
        read_to_the_end(half)
    client.send(*message())
    assert_equal(connection.receive(LIMITS), message())
    client.close()
    connection.close()


def test_a_connection_that_nobody_can_use_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    def fail(connection: Connection, hello: Hello) -> None:
        raise RuntimeError("no such job")

    listener = Listener(
        host="", port=0, find_secret=lambda _: SECRET, on_connection=fail, encryption=Plain()
    )
    client = _connect(listener.endpoint("localhost"))
    with pytest.raises(ConnectionLost):
        client.receive(LIMITS)
    listener.close()
    assert "no such job" in caplog.text


def test_without_unix_sockets_a_task_of_this_machine_comes_by_tcp(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFPS_UNIX_SOCKETS", "off")
    client = _connect(server.listener.endpoint("localhost"))
    assert "unix socket" not in client.peer
    _assert_talks(server, client)
    monkeypatch.setenv("TFPS_UNIX_SOCKETS", "no")
    with raises(ConfigError, "TFPS_UNIX_SOCKETS", received="'no'", remedy="'on' or 'off'"):
        server.listener.endpoint("localhost")
