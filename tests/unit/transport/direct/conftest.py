"""Pairs of connections over real sockets; a test that leaves a thread or a descriptor fails."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.unit.transport.direct.wire import SocketPair, connected


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Only what a test itself opened is counted: it has to be closed when it ends."""
    threads, files = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    yield
    assert set(threading.enumerate()) - threads == set()
    left = set(os.listdir("/proc/self/fd")) - files
    # The folder's own descriptor while it is listed may have any free number.
    assert {name for name in left if os.path.exists(f"/proc/self/fd/{name}")} == set()


@pytest.fixture(params=[socket.AF_UNIX, socket.AF_INET])
def pair(request: pytest.FixtureRequest) -> Iterator[SocketPair]:
    """Two connected sockets."""
    sockets = connected(request.param)
    yield sockets
    for sock in sockets:
        sock.close()
