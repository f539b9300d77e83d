from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from benchmarks.socket_bytes import tcp_bytes, tcp_bytes_of

SENT = 100_000

pytestmark = pytest.mark.skipif(
    tcp_bytes_of(os.getpid()) is None, reason="the system must count the bytes of connections"
)


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_both_ways_of_a_connection_count(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip(f"{host} is no address of this machine")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as near:
            far, _ = listener.accept()
            before = tcp_bytes_of(os.getpid())
            with far:
                far.settimeout(30)
                near.sendall(bytes(SENT))
                left = SENT
                while left:
                    left -= len(far.recv(left))
                near.settimeout(30)
                far.sendall(b"done")
                assert near.recv(4) == b"done"
                after = tcp_bytes_of(os.getpid())
    assert before is not None
    assert after is not None
    # Both ends are here; the last bytes may not be acknowledged yet.
    assert 2 * SENT <= after - before <= 2 * (SENT + 4)


CHILD = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as near:
    near.sendall(bytes(100_000))
    print(len(near.recv(4)), flush=True)
    sys.stdin.read()
"""


def test_each_way_counts_by_itself_and_who_has_ended_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", CHILD, str(listener.getsockname()[1])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]
            far, _ = listener.accept()
            with far:
                far.settimeout(30)
                left = SENT
                while left:
                    left -= len(far.recv(left))
                far.sendall(b"done")
                child.stdout.readline()
                found = tcp_bytes([child.pid, os.getpid()])
                without = tcp_bytes_of(child.pid, but_ports=[listener.getsockname()[1]])
                child.stdin.close()
                child.wait()
    assert found is not None
    # What the child has sent is acknowledged by now; what this process has may not be. That a
    # connection was accepted counts as a byte.
    assert found[child.pid] in ((SENT, 4), (SENT + 1, 4))
    assert found[os.getpid()].received >= SENT
    assert without == 0  # a connection of a port counts on both of its sides
    assert tcp_bytes([child.pid]) == {}
