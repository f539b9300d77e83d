"""Cutting the connections to one address, and no other file."""

from __future__ import annotations

import socket
import threading

import psutil
import pytest

from tfps.recovery.probing.connections import cut_connections


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_only_connections_to_the_address_end(family: int, host: str) -> None:
    if family == socket.AF_INET6 and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        stopped, other = (socket.create_server((host, 0), family=family) for _ in range(2))
    except OSError:
        pytest.skip(f"{host} is no address of this machine")
    address = f"[{host}]" if ":" in host else host
    with stopped, other:
        with (
            socket.create_connection(stopped.getsockname()[:2]) as to_stopped,
            socket.create_connection(other.getsockname()[:2]) as to_other,
        ):
            for connection in (to_stopped, to_other):
                connection.settimeout(30)
            received: list[bytes] = []
            reader = threading.Thread(target=lambda: received.append(to_stopped.recv(1)))
            reader.start()
            files = psutil.Process().num_fds()
            assert cut_connections(f"{address}:{stopped.getsockname()[1]}") == 1
            reader.join(30)
            assert received == [b""]
            assert psutil.Process().num_fds() == files
            accepted, _ = other.accept()
            with accepted:
                accepted.sendall(b"x")
                assert to_other.recv(1) == b"x"


def test_a_name_that_does_not_resolve_has_no_connections() -> None:
    assert cut_connections("no-such-host.invalid:1234") == 0
