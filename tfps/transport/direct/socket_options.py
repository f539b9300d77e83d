"""Sets options of sockets: large buffers, no delay, and detection of lost peers."""

from __future__ import annotations

import functools
import socket
from pathlib import Path

# Large enough for a slab of a small model in one system call.
BUFFER_BYTES = 4 * 2**20
# A host that is silent for this long is lost. Also limits unacknowledged data, where keep-alive
# does not apply and Linux would retry for a quarter of an hour.
SILENCE_S = 60


def enlarge_buffers(sock: socket.socket) -> None:
    """Set large buffers; call it before `listen` and `connect`, which fix TCP's window scale."""
    for option, limit in ((socket.SO_SNDBUF, "wmem_max"), (socket.SO_RCVBUF, "rmem_max")):
        # A fixed size ends TCP's own tuning, which can grow beyond a low limit.
        if sock.family == socket.AF_UNIX or _kernel_limit(limit) >= BUFFER_BYTES:
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def watch_peer(sock: socket.socket, *, silence_s: int = SILENCE_S) -> None:
    """Set TCP options to send small messages without delay, and to detect silent peers.

    Args:
        sock: a socket; a unix socket stays as it is.
        silence_s: after this time without a sign of life the peer is lost.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, silence_s // 4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, silence_s // 12 or 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_s * 1000)


@functools.cache
def _kernel_limit(name: str) -> int:
    try:
        return int(Path("/proc/sys/net/core", name).read_text(encoding="ascii"))
    except (OSError, ValueError):  # hidden in some containers: leave it to TCP
        return 0
