"""Accepts connections of the job's own tasks over TCP and a unix socket."""

from __future__ import annotations

import contextlib
import logging
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from tfps.errors import ConfigError
from tfps.transport.direct.connection import Connection
from tfps.transport.direct.encryption import Encryption
from tfps.transport.direct.endpoint import Endpoint, this_machine
from tfps.transport.direct.handshake import (
    HANDSHAKE_S,
    FindSecret,
    HandshakeError,
    authenticate_server,
)
from tfps.transport.direct.hello import Hello
from tfps.transport.direct.refusals import RefusalLog
from tfps.transport.direct.socket_options import enlarge_buffers, watch_peer
from tfps.transport.setting import offers_unix_sockets

LOG = logging.getLogger(__name__)
PORT_VARIABLE = "TFPS_DATA_PORT"
# The most peers in a handshake, each with a thread and a descriptor. One more ends the oldest
# handshake: a task of the job needs milliseconds, so unauthenticated peers are dropped first.
MAX_HANDSHAKES = 64
BACKLOG = 256
# Without free descriptors the peer stays in the backlog; retrying at once would only waste CPU.
ACCEPT_RETRY_S = 0.2


class Listener:
    """Listens for connections from its creation until `close`.

    Args:
        host: a name or an address to listen at; empty for all of IPv4 and IPv6.
        port: the TCP port; 0 for any free one.
        find_secret: returns the secret of a hello's job, or None if the job is unknown.
        on_connection: called with every accepted connection, which it then owns, and the hello;
            each call has its own thread.
        encryption: the encryption of TCP.
        handshake_s: the time limit for a peer's handshake.

    Raises:
        ConfigError: the port is in use, or the host is not an address of this machine.

    Example:

    >>> import queue
    >>> from tfps.transport.direct import Plain, connect
    >>> secret, arrived = secrets.token_bytes(32), queue.Queue()
    >>> listener = Listener(
    ...     host="", port=0, find_secret=lambda _: secret, encryption=Plain(),
    ...     on_connection=lambda connection, hello: arrived.put((connection, hello)),
    ... )
    >>> endpoint = listener.endpoint("localhost")
    >>> hello = Hello(job=7, worker=0, incarnation=1)
    >>> client = connect(endpoint, hello, secret=secret, encryption=Plain())
    >>> server, heard = arrived.get(timeout=10)
    >>> heard.worker, server.peer
    (0, 'worker 0 at this machine')
    >>> for part in (client, server, listener):
    ...     part.close()
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        find_secret: FindSecret,
        on_connection: Callable[[Connection, Hello], None],
        encryption: Encryption,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._find_secret = find_secret
        self._on_connection = on_connection
        self._encryption = encryption
        self._handshake_s = handshake_s
        self._refusals = RefusalLog(LOG)
        self._lock = threading.Lock()
        self._workers = threading.BoundedSemaphore(MAX_HANDSHAKES)
        self._unauthenticated: dict[threading.Thread, socket.socket] = {}  # the oldest first
        self._threads: set[threading.Thread] = set()
        self._closing = threading.Event()
        self._tcp = _listen_tcp(host, port)
        self.port = int(self._tcp.getsockname()[1])
        self._unix_name = f"tfps-{secrets.token_hex(16)}"
        self._unix = _listen_unix(self._unix_name)
        self._woken, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for sock in (self._tcp, self._unix, self._woken):
            self._selector.register(sock, selectors.EVENT_READ)
        self._acceptor = threading.Thread(target=self._accept, name="tfps-accept", daemon=True)
        self._acceptor.start()

    def endpoint(self, host: str) -> Endpoint:
        """Return the endpoint of this listener.

        Args:
            host: this machine's name or address, as the other tasks know it.
        """
        unix_name = self._unix_name if offers_unix_sockets() else ""
        return Endpoint(host, self.port, unix_name, this_machine())

    def close(self) -> None:
        """Stop listening, and wait for all threads; accepted connections stay open.

        May be called repeatedly, but not from `on_connection`, for whose end it waits.
        """
        self._closing.set()
        self._drop_unauthenticated(MAX_HANDSHAKES)
        self._wake.close()  # the other end becomes readable
        self._acceptor.join()
        self._drop_unauthenticated(MAX_HANDSHAKES)
        with self._lock:
            threads = set(self._threads)
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closing.is_set():
            ready = [key.fileobj for key, _ in self._selector.select()]
            for sock in (self._tcp, self._unix):
                if sock in ready:
                    self._accept_one(sock)
        self._selector.close()
        for sock in (self._tcp, self._unix, self._woken):
            sock.close()

    def _accept_one(self, listening: socket.socket) -> None:
        try:
            sock, address = listening.accept()
        except BlockingIOError:  # the peer closed the connection
            return
        except OSError as error:
            self._refuse("an unknown address", str(error))
            self._closing.wait(ACCEPT_RETRY_S)
            return
        if not self._workers.acquire(blocking=False):
            self._drop_unauthenticated(1)
            self._workers.acquire()
        thread = threading.Thread(
            target=self._handle_peer, args=(sock, address), name="tfps-handshake", daemon=True
        )
        with self._lock:
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # out of threads or of memory, for now
            with self._lock:
                self._threads.remove(thread)
            self._workers.release()
            self._refuse("an unknown address", str(error))
            sock.close()

    def _handle_peer(self, sock: socket.socket, address: Any) -> None:
        try:
            try:
                admitted = self._authenticate(sock, address)
            finally:
                self._workers.release()
            if admitted is not None:
                self._serve_connection(*admitted)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _authenticate(self, sock: socket.socket, address: Any) -> tuple[Connection, Hello] | None:
        deadline_s = time.monotonic() + self._handshake_s
        thread = threading.current_thread()
        source, port, dropped = "this machine", "", False
        try:
            if sock.family == socket.AF_UNIX:
                enlarge_buffers(sock)
            else:
                source, port = address[0], f" port {address[1]}"
                watch_peer(sock)
                sock = self._encryption.accept(sock)
            with self._lock:
                self._unauthenticated[thread] = sock
            try:
                # Checked after the socket is in the dict: either `close` finds it, or this does.
                if self._closing.is_set():
                    raise ConnectionAbortedError("this task closes its connections")
                hello = authenticate_server(
                    sock, find_secret=self._find_secret, deadline_s=deadline_s
                )
            finally:
                with self._lock:
                    dropped = self._unauthenticated.pop(thread, None) is None
            sock.settimeout(None)
            connection = Connection(sock, peer=f"{hello.role} {hello.worker} at {source}{port}")
        except OSError as error:
            reason = str(error)
            if dropped and not self._closing.is_set():
                reason = f"received more than {MAX_HANDSHAKES} handshakes at once"
            # Log before the peer is informed, so that its operator finds the reason here.
            if isinstance(error, HandshakeError) or not self._closing.is_set():
                self._refuse(source, reason)
            sock.close()
            return None
        except BaseException:
            sock.close()
            raise
        return connection, hello

    def _refuse(self, source: str, reason: str) -> None:
        with self._lock:
            self._refusals.log_refusal(source, reason)

    def _serve_connection(self, connection: Connection, hello: Hello) -> None:
        if self._closing.is_set():
            connection.close()
            return
        try:
            self._on_connection(connection, hello)
        except Exception:
            LOG.exception("closed the connection of %s", connection.peer)
            connection.close()

    def _drop_unauthenticated(self, count: int) -> None:
        """End the oldest handshakes by shutting their sockets down, which ends their threads."""
        with self._lock:
            for thread in list(self._unauthenticated)[:count]:
                sock = self._unauthenticated.pop(thread)
                with contextlib.suppress(OSError):  # the peer may be gone
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _listen_tcp(host: str, port: int) -> socket.socket:
    try:
        if host:
            family, _, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            both = False
        else:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            address = ("", port)
        sock = socket.create_server(address, family=family, backlog=1, dualstack_ipv6=both)
    except OSError as error:
        raise ConfigError(
            f"received port {port} of {host or 'this machine'}, expected one where this task can "
            f"listen ({error}); set it to a free port, or to 0 for any",
            source=PORT_VARIABLE,
        ) from error
    # Connections inherit the buffers; the second `listen` only changes the length of the queue.
    enlarge_buffers(sock)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


def _listen_unix(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind("\0" + name)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock
