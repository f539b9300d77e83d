"""The handshake, in which both sides prove that they know the job's secret.

```
server  magic, protocol, nonce
client  magic, protocol, nonce, length of the hello | the hello, HMAC of all of it and the server's
server  1, HMAC of all of it     or     0: refused
```
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable

from tfps.transport.direct.connection import ConnectionLost
from tfps.transport.direct.hello import HELLO_BYTES, Hello, HelloError
from tfps.transport.message import PROTOCOL

MAGIC = b"tfps-hi\0"
NONCE_BYTES = 32
GREETING = struct.Struct(f"<8sH{NONCE_BYTES}s")
LENGTH = struct.Struct("<I")
MAC_BYTES = hashlib.sha256().digest_size
ACCEPTED = b"\x01"
REFUSED = b"\x00"
# An unauthenticated peer may hold a thread of the listener for this long.
HANDSHAKE_S = 10.0


FindSecret = Callable[[Hello], bytes | None]


class HandshakeError(ConnectionLost):
    """The peer is no task of this job, or does not behave like one; a retry cannot help."""


def authenticate_server(
    sock: socket.socket, *, find_secret: FindSecret, deadline_s: float
) -> Hello:
    """Run the server's side of the handshake, and return the client's hello.

    Args:
        sock: a connected socket; its timeout is changed.
        find_secret: returns the secret of a hello's job, or None if the job is unknown.
        deadline_s: the deadline, in the time of ``time.monotonic()``.

    Raises:
        HandshakeError: the client was refused, with the reason.
        ConnectionLost: the peer was too slow or closed the connection.
    """
    dialogue = _Dialogue(sock, deadline_s)
    dialogue.send_greeting()
    dialogue.expect_greeting()
    (length,) = LENGTH.unpack(dialogue.receive(LENGTH.size))
    if length > HELLO_BYTES:
        raise HandshakeError(f"hello: received {length} bytes, expected at most {HELLO_BYTES}")
    data = dialogue.receive(length)
    try:
        hello = Hello.from_bytes(data)
    except HelloError as error:
        dialogue.send_refusal()
        raise HandshakeError(str(error)) from error
    secret = find_secret(hello)
    if secret is None:
        dialogue.send_refusal()
        raise HandshakeError(f"job: received {hello.job}, expected a job of this server")
    if not dialogue.receive_proof(b"client", secret):
        dialogue.send_refusal()
        raise HandshakeError(
            "received a wrong secret; give the same TFPS_JOB_SECRET to all tasks of the job"
        )
    dialogue.send(ACCEPTED)
    dialogue.send_proof(b"server", secret)
    return hello


def authenticate_client(
    sock: socket.socket, hello: Hello, *, secret: bytes, deadline_s: float
) -> None:
    """Run the client's side of the handshake.

    Args:
        sock: a connected socket; its timeout is changed.
        hello: the description of this client.
        secret: the secret of the job.
        deadline_s: the deadline, in the time of ``time.monotonic()``.

    Raises:
        HandshakeError: the server refused the client, or does not know the secret itself.
        ConnectionLost: the peer was too slow or closed the connection.
    """
    dialogue = _Dialogue(sock, deadline_s)
    dialogue.expect_greeting()
    dialogue.send_greeting()
    data = hello.to_bytes()
    dialogue.send(LENGTH.pack(len(data)) + data)
    dialogue.send_proof(b"client", secret)
    if dialogue.receive(1) != ACCEPTED:
        raise HandshakeError(
            "the server refused this task; give the same TFPS_JOB_SECRET to all tasks of the"
            " job, or find the reason in the server's log"
        )
    if not dialogue.receive_proof(b"server", secret):
        raise HandshakeError(
            "received a wrong secret from the server; give the same TFPS_JOB_SECRET to all tasks"
            " of the job, or connect to a server of this job"
        )


class _Dialogue:
    """Exchanges greetings and proofs; a proof covers all earlier bytes, to prevent replays."""

    def __init__(self, sock: socket.socket, deadline_s: float) -> None:
        self._socket = sock
        self._deadline_s = deadline_s
        self._transcript = bytearray()

    def send_greeting(self) -> None:
        self.send(GREETING.pack(MAGIC, PROTOCOL, secrets.token_bytes(NONCE_BYTES)))

    def expect_greeting(self) -> None:
        # The magic first: with another protocol a peer may have sent less than a greeting.
        magic = self.receive(len(MAGIC))
        if magic != MAGIC:
            raise HandshakeError(f"greeting: received {magic!r}, expected that of a task of tfps")
        _, protocol, _ = GREETING.unpack(magic + self.receive(GREETING.size - len(MAGIC)))
        if protocol != PROTOCOL:
            raise HandshakeError(
                f"protocol: received {protocol}, expected {PROTOCOL}; run the same version of tfps"
                " on all tasks"
            )

    def send_refusal(self) -> None:
        """Send a refusal, so that the peer's operator sees the cause, if the peer still exists."""
        with contextlib.suppress(ConnectionLost):
            self.send(REFUSED)

    def send_proof(self, role: bytes, secret: bytes) -> None:
        self.send(self._compute_proof(role, secret))

    def receive_proof(self, role: bytes, secret: bytes) -> bool:
        expected = self._compute_proof(role, secret)
        return hmac.compare_digest(self.receive(MAC_BYTES), expected)

    def _compute_proof(self, role: bytes, secret: bytes) -> bytes:
        # The role prevents a peer from sending back the proof that it has received.
        self._transcript += role
        return hmac.digest(secret, self._transcript, hashlib.sha256)

    def send(self, data: bytes) -> None:
        self._transcript += data
        self._set_timeout()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _lost_error(error) from error

    def receive(self, size_bytes: int) -> bytes:
        parts = bytearray()
        while len(parts) < size_bytes:
            self._set_timeout()
            try:
                data = self._socket.recv(size_bytes - len(parts))
            except OSError as error:
                raise _lost_error(error) from error
            if not data:
                raise ConnectionLost("the peer closed the connection during the handshake")
            parts += data
        self._transcript += parts
        return bytes(parts)

    def _set_timeout(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise _lost_error(TimeoutError())
        self._socket.settimeout(left_s)


def _lost_error(error: OSError) -> ConnectionLost:
    if isinstance(error, ssl.SSLError) and not isinstance(error, TimeoutError):
        return HandshakeError(f"TLS failed: {error}")
    if isinstance(error, TimeoutError):
        return ConnectionLost(
            "received no complete handshake in time; check that the peer runs, is a task of tfps"
            " and uses TLS if this task does"
        )
    return ConnectionLost(str(error))
