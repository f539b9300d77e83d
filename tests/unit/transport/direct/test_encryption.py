"""TLS: both sides show a certificate of the job's authority, or there is no connection."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.messages import check_message, raises
from tests.unit.transport.direct.certificates import made_tls, needs_openssl, openssl
from tests.unit.transport.direct.wire import (
    LIMITS,
    NotedSockets,
    assert_equal,
    message,
    on_lines,
    read_to_the_end,
    segments,
)
from tfps.errors import ConfigError
from tfps.transport.direct.connection import Connection, ConnectionLost
from tfps.transport.direct.connector import connect
from tfps.transport.direct.encryption import TLS, Encryption, Plain, encryption_from_environment
from tfps.transport.direct.handshake import HandshakeError
from tfps.transport.direct.hello import Hello
from tfps.transport.direct.listener import Listener

HELLO = Hello(job=1, worker=2, incarnation=3)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    return made_tls(tmp_path_factory.mktemp("tls") / "job")


@pytest.fixture(scope="module")
def other_tls(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    return made_tls(tmp_path_factory.mktemp("tls") / "other")


class ListenerAndClient:
    """A listener, and a client over TCP."""

    def __init__(self, server: Encryption) -> None:
        self.arrived: queue.Queue[Connection] = queue.Queue()
        self.listener = Listener(
            host="127.0.0.1",
            port=0,
            find_secret=lambda _: b"s",
            on_connection=lambda connection, hello: self.arrived.put(connection),
            encryption=server,
        )

    def connect(
        self, client: Encryption, *, unix: bool = False, timeout_s: float = 60
    ) -> Connection:
        endpoint = self.listener.endpoint("127.0.0.1")
        if not unix:
            endpoint = replace(endpoint, unix_name="")
        return connect(endpoint, HELLO, secret=b"s", encryption=client, timeout_s=timeout_s)

    def __enter__(self) -> ListenerAndClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()


@needs_openssl
@pytest.mark.parametrize("payload_bytes", [0, 100, 16_384, 1_000_000])
def test_messages_arrive_encrypted(tls: TLS, payload_bytes: int) -> None:
    noted = NotedSockets(tls)
    with ListenerAndClient(noted) as pair:
        client = pair.connect(noted)
        server = pair.arrived.get()
        for sender, receiver in ((client, server), (server, client)):
            sender.send(*message(5, payload_bytes))
            assert_equal(receiver.receive(LIMITS), message(5, payload_bytes))
        versions = [sock.version() for sock in noted.sockets if isinstance(sock, ssl.SSLSocket)]
        assert versions == ["TLSv1.3"] * 2
        client.close()
        with pytest.raises(ConnectionLost):
            server.receive(LIMITS)


@needs_openssl
def test_segments_arrive_encrypted(tls: TLS) -> None:
    arrays = [*segments(), np.arange(50_000), *segments()]
    with ListenerAndClient(tls) as pair:
        client = pair.connect(tls)
        server = pair.arrived.get()
        header, ids, payload = message(5, 100)
        client.send(header, ids, payload, *arrays)
        received = server.receive(LIMITS)
        assert_equal(received, (header, ids, np.concatenate([on_lines(arrays), payload])))
        client.close()
        server.close()


@needs_openssl
def test_a_send_waits_for_the_message_that_another_thread_receives(tls: TLS) -> None:
    """OpenSSL must not be entered twice; both come through in the end."""
    with ListenerAndClient(tls) as pair:
        client = pair.connect(tls)
        server = pair.arrived.get()
        for _ in range(20):
            with ThreadPoolExecutor(2) as pool:
                received = pool.submit(client.receive, LIMITS)
                sent = pool.submit(client.send, *message(1, 100_000))
                server.send(*message(2, 100_000))
                assert_equal(server.receive(LIMITS), message(1, 100_000))
                assert_equal(received.result(), message(2, 100_000))
                sent.result()
        client.close()
        server.close()


@needs_openssl
def test_close_wakes_a_reader_of_tls(tls: TLS) -> None:
    with ListenerAndClient(tls) as pair:
        client = pair.connect(tls)
        server = pair.arrived.get()
        with ThreadPoolExecutor(1) as pool:
            received = pool.submit(client.receive, LIMITS)
            server.send(*message())
            received.result()
            received = pool.submit(client.receive, LIMITS)
            client.close()
            with pytest.raises(ConnectionLost):
                received.result()
        server.close()


@needs_openssl
def test_a_unix_socket_stays_plain(tls: TLS) -> None:
    with ListenerAndClient(tls) as pair:
        client = pair.connect(Plain(), unix=True)
        assert "unix" in client.peer
        client.close()
        pair.arrived.get().close()


@needs_openssl
def test_certificates_of_another_authority_are_refused(
    tls: TLS, other_tls: TLS, caplog: pytest.LogCaptureFixture
) -> None:
    with ListenerAndClient(tls) as pair:
        with raises(HandshakeError, "TLS", received="certificate verify failed"):
            pair.connect(other_tls)
        mixed = TLS(other_tls.certificate, other_tls.key, tls.authority)
        with raises(HandshakeError, "TLS"):
            pair.connect(mixed)
    check_message(caplog.text, "127.0.0.1", received="TLS failed")
    assert pair.arrived.empty()


@needs_openssl
def test_both_sides_need_tls(tls: TLS) -> None:
    with ListenerAndClient(tls) as pair:
        with raises(ConnectionLost, "handshake", remedy="TLS"):
            pair.connect(Plain(), timeout_s=0.05)
    with ListenerAndClient(Plain()) as pair:
        with raises(HandshakeError, "TLS"):
            pair.connect(tls)


@needs_openssl
def test_the_listener_ends_tls_handshakes_too(tls: TLS) -> None:
    with ListenerAndClient(tls) as pair:
        unknown_client = socket.create_connection(("127.0.0.1", pair.listener.port))
        while "tfps-handshake" not in {thread.name for thread in threading.enumerate()}:
            time.sleep(0.001)
    with unknown_client:
        read_to_the_end(unknown_client)


@needs_openssl
def test_the_environment_names_the_files(tls: TLS) -> None:
    environment = {
        "TFPS_TLS_CERTIFICATE": tls.certificate,
        "TFPS_TLS_KEY": tls.key,
        "TFPS_TLS_AUTHORITY": tls.authority,
    }
    assert encryption_from_environment(environment) == tls
    for name in environment:
        some = {key: value for key, value in environment.items() if key != name}
        with raises(ConfigError, f"{name}: ", remedy="none of them"):
            encryption_from_environment(some)


def test_without_settings_there_is_no_encryption() -> None:
    assert encryption_from_environment({"TFPS_TLS_KEY": ""}) == Plain()


@needs_openssl
def test_files_that_do_not_fit_are_refused(tls: TLS, other_tls: TLS, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    openssl("ec", "-in", tls.key, "-aes128", "-passout", "pass:word", "-out", locked)
    for wrong in (
        replace_file(tls, "certificate", "missing.pem"),
        replace_file(tls, "key", other_tls.key),
        replace_file(tls, "key", str(locked)),
        replace_file(tls, "authority", tls.key),
    ):
        files = ", ".join(repr(file) for file in wrong.values())
        with raises(ConfigError, "TFPS_TLS_KEY", received=files, remedy="passphrase"):
            TLS(**wrong)


def replace_file(tls: TLS, name: str, file: str) -> dict[str, str]:
    files = {"certificate": tls.certificate, "key": tls.key, "authority": tls.authority}
    return files | {name: file}
