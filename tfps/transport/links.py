"""Keep a worker's direct connections to parameter servers."""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfps.bridge.closures.closure_error import LOST_SERVER
from tfps.bridge.named_functions import register_named_function
from tfps.consistency.ledger import NO_TICKET, Status
from tfps.transport import tokens
from tfps.transport.array_memory import give_back_memory, release_arrays
from tfps.transport.direct import (
    Connection,
    ConnectionLost,
    Encryption,
    Endpoint,
    FrameError,
    FrameLimits,
    Hello,
    connect,
    fingerprint,
    secret_from_environment,
)
from tfps.transport.message import REPLY_FIELDS, Kind, Reply, Request
from tfps.transport.service import MAX_IDS, RECLAIMED_BYTES

CONNECT_TIMEOUT_S = 10.0  # a server that listens responds within milliseconds
# The longest wait for exchanges of a cancelled closure, before its worker is removed from the
# members and when it joins. Servers reply within milliseconds, unless the exchange waits there for
# other workers; removing and joining both end that wait.
UNFINISHED_EXCHANGE_TIMEOUT_S = 1.0
# The number of failed closures of a worker to remember; more than ever run at the same time.
MAX_FAILED_SENDERS = 64


@dataclass(frozen=True)
class Peers:
    """The endpoints of a job's servers, passed to every exchange, or of its workers for sums.

    Args:
        endpoints: server or worker -> endpoint.
        secret: the job's secret in hexadecimal digits; empty to read it from the environment.
    """

    endpoints: dict[int, Endpoint]
    secret: str

    def to_json(self) -> str:
        """Encode the endpoints as JSON."""
        endpoints = {str(server): e.to_json() for server, e in self.endpoints.items()}
        return json.dumps({"endpoints": endpoints, "secret": self.secret})

    @classmethod
    def from_json(cls, text: str) -> Peers:
        """Decode the endpoints from JSON."""
        fields = json.loads(text)
        endpoints = {int(s): Endpoint.from_json(e) for s, e in fields["endpoints"].items()}
        return cls(endpoints, fields["secret"])


class Links:
    """Keeps connections to servers open between exchanges; no two exchanges share one.

    A server's loop has no state of the sender, so any idle connection can be used. A connection
    that has failed is closed and never reused.

    Args:
        encryption: the encryption of connections to other machines.
    """

    def __init__(self, *, encryption: Encryption) -> None:
        self._encryption = encryption
        self._lock = threading.Lock()
        self._idle: dict[tuple[int, int, int], list[Connection]] = {}
        self._busy: dict[Connection, tuple[int, int, int]] = {}
        self._last_failure = (0, "")  # job, text
        self._failed: OrderedDict[tuple[int, int, int], None] = OrderedDict()
        self._running_exchanges = Counter[tuple[int, int, int]]()  # exchanges of each sender
        self._has_ended = threading.Condition(self._lock)
        self._moved_endpoints: dict[Endpoint, Endpoint] = {}  # of restarted servers
        self._peers = functools.lru_cache(maxsize=8)(
            lambda text: Peers.from_json(text.decode())  # parsed once, not per step
        )

    def register(self, *, in_a_task: bool = True) -> None:
        """Register the functions that steps in this process and the coordinator call.

        Args:
            in_a_task: whether this process is a task of tfps. In the coordinator's process a user
                may have started plain servers, which must not look like servers of tfps.
        """
        register_named_function(tokens.EXCHANGE, self.exchange)
        register_named_function(tokens.HANG_UP, self._close_server_connections)
        register_named_function(tokens.CANCEL, self.cancel)
        register_named_function(tokens.MOVED, self.move_endpoint)
        if in_a_task:
            register_named_function(tokens.FINGERPRINT, self._fingerprint)
            register_named_function(tokens.GIVE_BACK, give_back_memory)
        register_named_function(tokens.LINK_FAILURE, self._link_failure)

    def exchange(
        self, peers: Any, servers: np.ndarray, sizes: np.ndarray, *messages: np.ndarray
    ) -> list[np.ndarray]:
        """Send a request to each server, then receive all replies.

        For an unreachable server the reply is `Status.LOST` with zeros, and so are the replies of
        all servers for the rest of this closure: half of a step must not count as a step.

        Args:
            peers: `Peers` as JSON.
            servers: the numbers of the servers.
            sizes: for each server the size of the reply's payload, the largest size of rows that
                may follow it, and the number of arrays of the request.
            messages: header, ids, payload and segments of each request.
        """
        known = self._peers(bytes(peers.item() if isinstance(peers, np.ndarray) else peers))
        arrays, sizes_by_server = iter(messages), sizes.tolist()
        requests = [tuple(itertools.islice(arrays, count)) for _, _, count in sizes_by_server]
        sender = _sender_of(requests[0][0].tolist())
        if not self._begin_exchange(sender, joins=requests[0][0][Request.KIND] == Kind.JOIN):
            return [
                part for reply_bytes, _, _ in sizes_by_server for part in _lost_reply(reply_bytes)
            ]
        try:
            return self._exchange(known, sender, servers.tolist(), requests, sizes_by_server)
        finally:
            self._end_exchange(sender)

    def _begin_exchange(self, sender: tuple[int, int, int], *, joins: bool) -> bool:
        """Record the start of an exchange; return False if its closure has failed.

        TensorFlow may end a cancelled closure before an exchange of it has ended. If the same
        worker joined meanwhile, the first server might refuse its push and the second accept it.
        """

        def is_alone() -> bool:
            earlier = {other for other in self._running_exchanges if other[:2] == sender[:2]}
            return earlier <= {sender, (*sender[:2], NO_INCARNATION)}

        with self._lock:
            if sender in self._failed:
                return False
            if joins:
                self._has_ended.wait_for(is_alone, timeout=UNFINISHED_EXCHANGE_TIMEOUT_S)
            self._running_exchanges[sender] += 1
            return True

    def _end_exchange(self, sender: tuple[int, int, int]) -> None:
        with self._lock:
            self._running_exchanges[sender] -= 1
            if not self._running_exchanges[sender]:
                del self._running_exchanges[sender]
                self._has_ended.notify_all()

    def _exchange(
        self,
        known: Peers,
        sender: tuple[int, int, int],
        servers: list[int],
        requests: list[Any],
        sizes_by_server: list[list[int]],
    ) -> list[np.ndarray]:
        asked = list(zip(servers, requests, sizes_by_server, strict=True))
        sent = [self._send(known, server, request) for server, request, _ in asked]
        if any(
            max(reply_bytes, row_bytes) >= RECLAIMED_BYTES
            for reply_bytes, row_bytes, _ in sizes_by_server
        ):
            release_arrays()
        replies: list[np.ndarray] = []
        for connection, (server, request, (reply_bytes, row_bytes, _)) in zip(
            sent, asked, strict=True
        ):
            reply = self._receive(connection, reply_bytes, row_bytes)
            if reply is None and sender[2] == NO_INCARNATION:
                reply = self._repeat_request(known, server, request, reply_bytes, row_bytes)
            elif reply is None:
                self._record_failed_sender(sender)
                reply = _lost_reply(reply_bytes)
            replies.extend(reply)
        return replies

    def _repeat_request(
        self, peers: Peers, server: int, request: Any, reply_bytes: int, row_bytes: int
    ) -> Any:
        """Repeat a request on a new connection; scheduled functions may run more than once.

        Raises:
            ConnectionError: the server is lost; the coordinator turns it into `UnavailableError`.
        """
        self._close_idle(int(request[0][Request.JOB]), server)
        reply = self._receive(self._send(peers, server, request), reply_bytes, row_bytes)
        if reply is None:
            raise ConnectionError(
                f"{LOST_SERVER} /job:ps/replica:0/task:{server}: "
                f"{self._last_failure[1] or 'the server does not respond'}"
            )
        return reply

    def _send(self, peers: Peers, server: int, request: Any) -> Connection | None:
        fields = request[0].tolist()
        key = (fields[Request.JOB], server, fields[Request.PLAN])
        connection = None
        try:
            connection = self._take_idle(key) or self._connect(peers, key, fields[Request.WORKER])
            with self._lock:
                self._busy[connection] = key
            if fields[Request.KIND] == Kind.LEAVE:
                connection.release_buffers()
            connection.send(*request)
        except (ConnectionLost, OSError) as error:
            if connection is not None:
                self._close_connection(connection)
            self._record_reason(key, error)
            return None
        return connection

    def _receive(self, connection: Connection | None, reply_bytes: int, row_bytes: int) -> Any:
        if connection is None:
            return None
        try:
            reply = connection.receive(_reply_limits(reply_bytes + row_bytes))
            if reply[2].size < reply_bytes:
                raise FrameError(f"reply: received {reply[2].size} bytes, expected {reply_bytes}")
        except (ConnectionLost, FrameError) as error:
            self._record_reason(self._close_connection(connection), error)
            return None
        with self._lock:
            key = self._busy.pop(connection)
            self._idle.setdefault(key, []).append(connection)
        return reply

    def _take_idle(self, key: tuple[int, int, int]) -> Connection | None:
        while True:
            with self._lock:
                idle = self._idle.get(key)
                connection = idle.pop() if idle else None
            if connection is None or not connection.has_ended():
                return connection
            connection.close()  # the server has ended it to use its thread for another one

    def _connect(self, peers: Peers, key: tuple[int, int, int], worker: int) -> Connection:
        job_id, server, plan_id = key
        self._close_ended()
        known = peers.endpoints[server]
        return connect(
            self._moved_endpoints.get(known, known),
            Hello(job=job_id, worker=worker, incarnation=NO_INCARNATION, plan=str(plan_id)),
            secret=bytes.fromhex(peers.secret) or secret_from_environment() or b"",
            encryption=self._encryption,
            timeout_s=CONNECT_TIMEOUT_S,
        )

    def _close_connection(self, connection: Connection) -> tuple[int, int, int] | None:
        with self._lock:
            key = self._busy.pop(connection, None)
        connection.close()
        return key

    def _record_reason(self, key: tuple[int, int, int] | None, error: Exception) -> None:
        if key is not None:
            self._last_failure = (key[0], f"ps {key[1]}: {error}")

    def _link_failure(self, job_id: np.ndarray) -> bytes:
        job, text = self._last_failure
        return (text if job == int(job_id) else "").encode()

    def _fingerprint(self, job_id: np.ndarray) -> bytes:
        return fingerprint(secret_from_environment(), job=int(job_id))

    def _record_failed_sender(self, sender: tuple[int, int, int]) -> None:
        if sender[2] != NO_INCARNATION:
            with self._lock:
                self._failed[sender] = None
                while len(self._failed) > MAX_FAILED_SENDERS:
                    self._failed.popitem(last=False)

    def cancel(self, job_id: Any, worker: Any, incarnation: Any) -> np.int64:
        """Refuse new exchanges of a closure, and wait for the running ones.

        `NO_INCARNATION` waits for the exchanges of all closures of the worker. Returns whether all
        have ended within `UNFINISHED_EXCHANGE_TIMEOUT_S`.
        """
        sender = int(job_id), int(worker), int(incarnation)
        self._record_failed_sender(sender)

        def is_of_closure(other: tuple[int, int, int]) -> bool:
            return other[:2] == sender[:2] and sender[2] in (other[2], NO_INCARNATION)

        with self._lock:
            have_ended = self._has_ended.wait_for(
                lambda: not any(map(is_of_closure, self._running_exchanges)),
                timeout=UNFINISHED_EXCHANGE_TIMEOUT_S,
            )
        return np.int64(have_ended)

    def _close_server_connections(self, job_id: np.ndarray, server: np.ndarray) -> np.int64:
        """Close all connections to a server that does not reply, which ends their exchanges."""
        wanted = (int(job_id), int(server))
        self._close_idle(*wanted)
        with self._lock:
            busy = [c for c, key in self._busy.items() if key[:2] == wanted]
        for connection in busy:
            connection.close()
        return np.int64(1)

    def move_endpoint(self, before: Any, now: Any) -> np.int64:
        """Set the new endpoint of a restarted server; traced steps still use the first one.

        Args:
            before: the endpoint of its first start, which traces contain, as JSON.
            now: its current endpoint, as JSON.
        """
        texts = (bytes(np.asarray(text).item()).decode() for text in (before, now))
        first, newest = map(Endpoint.from_json, texts)
        self._moved_endpoints[first] = newest
        return np.int64(1)

    def _close_ended(self) -> None:
        """Close idle connections that servers have ended, because a job or a plan ended."""
        with self._lock:
            ended = [(k, c) for k, cs in self._idle.items() for c in cs if c.has_ended()]
            for key, connection in ended:
                self._idle[key].remove(connection)
        for _, connection in ended:
            connection.close()

    def close_job(self, job_id: int) -> None:
        """Close all idle connections of a job."""
        with self._lock:
            servers = {key[1] for key in self._idle if key[0] == job_id}
        for server in servers:
            self._close_idle(job_id, server)

    def _close_idle(self, job_id: int, server: int) -> None:
        with self._lock:
            keys = [key for key in self._idle if key[:2] == (job_id, server)]
            connections = [c for key in keys for c in self._idle.pop(key)]
        for connection in connections:
            connection.close()


NO_INCARNATION = 0  # for scheduled functions, which have no ticket and are repeated as a whole


def _sender_of(fields: Sequence[int]) -> tuple[int, int, int]:
    return fields[Request.JOB], fields[Request.WORKER], fields[Request.INCARNATION]


@functools.lru_cache(maxsize=64)
def _reply_limits(max_bytes: int) -> FrameLimits:
    return FrameLimits(header_fields=REPLY_FIELDS, max_ids=MAX_IDS, max_payload_bytes=max_bytes)


def _lost_reply(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    header = np.zeros([REPLY_FIELDS], np.int64)
    header[Reply.STATUS] = Status.LOST
    header[Reply.NEXT_TICKET] = NO_TICKET
    return header, np.zeros([0], np.int64), np.zeros([size], np.uint8)
