"""Connects a client to a listener."""

from __future__ import annotations

import logging
import socket
import time

from tfps.transport.direct.connection import Connection, ConnectionLost
from tfps.transport.direct.encryption import Encryption
from tfps.transport.direct.endpoint import Endpoint
from tfps.transport.direct.handshake import HANDSHAKE_S, HandshakeError, authenticate_client
from tfps.transport.direct.hello import Hello
from tfps.transport.direct.socket_options import enlarge_buffers, watch_peer

LOG = logging.getLogger(__name__)


def connect(
    endpoint: Endpoint,
    hello: Hello,
    *,
    secret: bytes,
    encryption: Encryption,
    timeout_s: float = HANDSHAKE_S,
) -> Connection:
    """Connect and authenticate: over the unix socket on the same machine, otherwise over TCP.

    Args:
        endpoint: the endpoint of the listener.
        hello: the description of this client.
        secret: the secret of the job.
        encryption: the encryption of TCP, as on the other side; unix sockets are not encrypted.
        timeout_s: the time limit for connecting and authenticating.

    Raises:
        HandshakeError: the peer is no server of this job, or refused this task.
        ConnectionLost: no process listens or responds at the endpoint.
    """
    deadline_s = time.monotonic() + timeout_s
    sock = _connect_unix(endpoint, timeout_s) if endpoint.is_local else None
    peer = f"{endpoint.address} (unix socket)" if sock else endpoint.address
    try:
        if sock is None:
            sock = _connect_tcp(endpoint, timeout_s)
            sock = encryption.connect(sock)
        authenticate_client(sock, hello, secret=secret, deadline_s=deadline_s)
        sock.settimeout(None)
        return Connection(sock, peer=peer)
    except BaseException as error:
        if sock is not None:
            sock.close()
        if isinstance(error, OSError):
            kind = HandshakeError if isinstance(error, HandshakeError) else ConnectionLost
            raise kind(f"cannot connect to {peer}: {error}") from error
        raise


def _connect_unix(endpoint: Endpoint, timeout_s: float) -> socket.socket | None:
    sock = socket.socket(socket.AF_UNIX)
    try:
        enlarge_buffers(sock)
        sock.settimeout(timeout_s)
        sock.connect("\0" + endpoint.unix_name)
    except OSError as error:
        sock.close()
        LOG.info(
            "%s: connecting over TCP, since its unix socket is unavailable (%s)",
            endpoint.address,
            error,
        )
        return None
    return sock


def _connect_tcp(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    """Connect to the first address of the host that responds.

    Unlike `socket.create_connection` it sets options before it connects, which fixes the scale of
    TCP's window.
    """
    deadline_s = time.monotonic() + timeout_s
    errors: list[OSError] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM
    ):
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            enlarge_buffers(sock)
            watch_peer(sock)
            sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
            sock.connect(address)
        except OSError as error:
            errors.append(error)
            if sock is not None:
                sock.close()
        else:
            return sock
    raise errors[0] if errors else OSError(f"host {endpoint.host!r} has no address")
