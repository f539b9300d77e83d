"""A port that is held is found before a server starts, with the process that holds it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.messages import check_message, raises
from tfps.cluster import ClusterSpec, lease_ports
from tfps.cluster.listening import check_listening, is_elsewhere, make_port_error
from tfps.cluster.ports import PortLease
from tfps.errors import ListenError

HOLDER = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PortLease.REUSE_PORT_VARIABLE, raising=False)


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def holder(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The number of a process, and of the port that it listens at."""
    command = [sys.executable, "-c", HOLDER, request.param]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()


def _spec(port: int, host: str = "127.0.0.1") -> ClusterSpec:
    return ClusterSpec(
        jobs={"chief": ("127.0.0.1:1",), "worker": (f"{host}:{port}",), "ps": ("127.0.0.1:2",)}
    )


def test_another_process_holds_it(holder: tuple[int, int]) -> None:
    pid, port = holder
    received = f"in use by process {pid} ({sys.executable} -c"
    remedy = "change the address of worker 0"
    with raises(ListenError, f"127.0.0.1:{port}", received=received, remedy=remedy) as raised:
        check_listening(_spec(port), "worker", 0)
    assert "of another task" not in str(raised.value)


def test_where_holders_are_secret(holder: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", refuse)
    with raises(ListenError, "worker 0", received=f"port {holder[1]} of this machine is in use."):
        check_listening(_spec(holder[1]), "worker", 0)


def test_this_process_holds_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with raises(ListenError, f"127.0.0.1:{port}", received="in use by this process"):
            check_listening(_spec(port), "worker", 0)


def test_a_port_of_another_machine(holder: tuple[int, int]) -> None:
    with raises(ListenError, "worker 0", received="192.0.2.1 is not", remedy="TF_CONFIG"):
        check_listening(_spec(holder[1], "192.0.2.1"), "worker", 0)
    assert is_elsewhere("192.0.2.1:2222")
    assert not is_elsewhere(f"{socket.gethostname()}:2222")
    assert not is_elsewhere("no-such-host.invalid:2222")


def test_a_free_port_stays_free() -> None:
    with lease_ports(1) as lease:
        port = lease.ports[0]
    check_listening(_spec(port), "worker", 0)
    with socket.create_server(("", port)):
        pass


def test_a_connection_that_wears_off_is_no_obstacle() -> None:
    """A server that has ended, having hung up first, can be started again at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()
            assert client.recv(1) == b""
    with pytest.raises(OSError, match="in use"), socket.socket() as plain:
        plain.bind(("127.0.0.1", port))
    check_listening(_spec(port), "worker", 0)


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="leases are given back here")
def test_a_leased_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with lease_ports(1) as lease:
        spec = _spec(lease.ports[0])
        with pytest.raises(ListenError):
            check_listening(spec, "worker", 0)
        monkeypatch.setenv(PortLease.REUSE_PORT_VARIABLE, "true")
        check_listening(spec, "worker", 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may take any port")
def test_a_port_of_the_superuser() -> None:
    with raises(ListenError, "worker 0", received="port 1 of this machine", remedy="TF_CONFIG"):
        check_listening(_spec(1), "worker", 0)


def test_taken_after_the_check() -> None:
    with lease_ports(1) as lease:
        spec = _spec(lease.ports[0])
    reason = "Could not start gRPC server"
    text = str(make_port_error(spec, "worker", 0, reason))
    check_message(text, f"127.0.0.1:{lease.ports[0]}", received=reason, remedy="TF_CONFIG")
