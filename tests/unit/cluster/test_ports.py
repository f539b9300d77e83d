"""Leased ports: free, distinct, and refused to processes that do not share them on purpose."""

from __future__ import annotations

import socket

import pytest

from tfps.cluster import accepts_connections, lease_ports

NEEDS_SHARING = pytest.mark.skipif(
    not hasattr(socket, "SO_REUSEPORT"), reason="the system has no SO_REUSEPORT"
)


def test_leased_ports_are_distinct_and_taken() -> None:
    with lease_ports(5) as lease:
        assert len(set(lease.ports)) == 5
        for port in lease.ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
    for port in lease.ports:
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))


def test_a_port_that_was_reserved_meanwhile_is_not_leased_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two processes may pick the same free port before one of them reserves it."""
    with lease_ports(2) as lease:
        taken, free = lease.ports
        lease.release(free)
        picked = iter([taken, free])
        monkeypatch.setattr("portpicker.pick_unused_port", lambda: next(picked))
        with lease_ports(1) as other:
            assert other.ports == (free,)


@NEEDS_SHARING
def test_a_task_listens_on_its_port_while_it_stays_leased() -> None:
    with lease_ports(1) as lease:
        [port] = lease.ports
        assert not accepts_connections(f"127.0.0.1:{port}")
        for _ in range(2):  # it is started, lost, and started again
            with socket.socket() as task:
                task.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                task.bind(("0.0.0.0", port))
                task.listen()
                assert accepts_connections(f"127.0.0.1:{port}")
            assert not accepts_connections(f"127.0.0.1:{port}")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def test_releasing_one_port_keeps_the_others() -> None:
    with lease_ports(2) as lease:
        first, second = lease.ports
        lease.release(first)
        lease.release(first)
        with socket.socket() as other:
            other.bind(("127.0.0.1", first))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", second))


def test_a_lease_takes_over_what_another_one_holds() -> None:
    with lease_ports(1) as lease:
        with lease_ports(2) as other:
            ports = (*lease.ports, *other.ports)
            lease.absorb(other)
            assert other.ports == ()
        assert lease.ports == ports
        with socket.socket() as late, pytest.raises(OSError, match="in use"):
            late.bind(("127.0.0.1", ports[-1]))
    with socket.socket() as late:
        late.bind(("127.0.0.1", ports[-1]))
