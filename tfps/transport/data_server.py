"""The parameter server's side of `direct`: accepts workers and runs a service loop for each."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.named_functions import register_named_function
from tfps.errors import ProtocolError
from tfps.transport import tokens
from tfps.transport.array_memory import give_back_memory, release_arrays
from tfps.transport.direct import (
    Connection,
    ConnectionLost,
    Encryption,
    FrameError,
    FrameLimits,
    Hello,
    Listener,
    fingerprint,
)
from tfps.transport.message import REQUEST_FIELDS, Kind, Request
from tfps.transport.service import MAX_IDS, RECLAIMED_BYTES, Service
from tfps.transport.service_loop import CONNECTION_ENDED
from tfps.transport.session_options import session_options

logger = logging.getLogger(__name__)

UNKNOWN_HOST = ""  # the coordinator knows this server's address
# Errors that end a loop without a bug in its functions.
INTERRUPTIONS = (tf.errors.CancelledError, tf.errors.AbortedError, tf.errors.UnavailableError)
# A worker whose connection ended by an error of a function asks for the error within this time.
RECENT_ERROR_S = 10.0
NO_REQUEST = (
    np.zeros([REQUEST_FIELDS], np.int64),
    np.zeros([0], np.int64),
    np.zeros([0], np.uint8),
)


class _PlanSession:
    """Runs the service loop of a plan, for any number of connections."""

    def __init__(self, service: Service, graph: bytes, *, target: str, device: str) -> None:
        self.service = service
        definition = tf.compat.v1.GraphDef.FromString(graph)
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._connection, self._end = tf.import_graph_def(
                definition, return_elements=["connection:0", "end:0"], name=""
            )
        options = session_options(device)
        self._session = tf.compat.v1.Session(target, graph=self._graph, config=options)
        self._lock = threading.Lock()
        self._running = 0
        self._retired = False

    def run(self, number: int) -> None:
        """Serve one connection until it ends."""
        with self._lock:
            self._running += 1
        try:
            self._session.run(self._end, {self._connection: number})
        finally:
            self._end_connections(1)

    def close_when_idle(self) -> None:
        """Close the session as soon as the last connection has ended."""
        self._retired = True
        self._end_connections(0)

    def cancel(self) -> None:
        """End all running functions, also those that wait for a worker that will not come.

        Call this only if the variables are no longer used: when a function that waits for a mutex
        is cancelled, TensorFlow lets the next one pass although the mutex is held.
        """
        self._session.close()

    def _end_connections(self, count: int) -> None:
        with self._lock:
            self._running -= count
            is_last = self._retired and not self._running
        if is_last:
            self._session.close()


class _ServedConnection:
    """Holds a connection and the limits of its requests, which are computed once."""

    def __init__(self, connection: Connection, service: Service) -> None:
        self.connection, self.service = connection, service
        largest_bytes = service.largest_request_bytes
        self.limits = FrameLimits(
            header_fields=REQUEST_FIELDS, max_ids=MAX_IDS, max_payload_bytes=largest_bytes
        )
        self.reclaims = largest_bytes >= RECLAIMED_BYTES


@dataclass
class _JobState:
    """Holds the state of one job on this server."""

    secret: bytes
    plan_sessions: dict[str, _PlanSession] = field(default_factory=dict)
    failure: str = ""
    received_bytes: int = 0  # over connections that have ended
    sent_bytes: int = 0
    errors: dict[int, tuple[float, str]] = field(default_factory=dict)  # plan -> (time, text)


class DataServer:
    """Accepts the workers of any number of jobs and serves the plans that coordinators install.

    Each connection has a thread that waits in a TensorFlow session of this process. The loop in the
    session uses the same named resources as requests over other carriers.

    Args:
        target: returns the target of this process's `tf.distribute.Server`, once it has started.
        device: the device of this server.
        host: the host to listen on.
        port: the port to listen on; 0 takes a free one.
        secret: the secret of every job; None lets each coordinator send its own.
        encryption: the encryption of connections from other machines.
        max_connections: the largest number of connections, each of which keeps a TensorFlow thread
            waiting. One more ends the connection that was idle longest; its worker reconnects when
            it needs to.
    """

    def __init__(
        self,
        *,
        target: Callable[[], str],
        device: str,
        host: str,
        port: int,
        secret: bytes | None,
        encryption: Encryption,
        max_connections: int,
    ) -> None:
        self._target, self._device, self._secret = target, device, secret
        self._jobs: dict[int, _JobState] = {}
        self._lock = threading.Lock()
        self._max_connections = max_connections
        self._waiting: dict[int, None] = {}  # idle connections, the longest idle first
        self._numbers = itertools.count(1)
        self._connections: dict[int, _ServedConnection] = {}
        self.listener = Listener(
            host=host,
            port=port,
            find_secret=self._find_secret,
            on_connection=self._serve,
            encryption=encryption,
        )

    def register(self) -> None:
        """Register the functions that the coordinator and the service loops call."""
        functions: dict[str, Callable[..., Any]] = {
            tokens.FINGERPRINT: self._fingerprint,
            tokens.OPEN: self._open,
            tokens.INSTALL: self._install,
            tokens.FORGET: self._remove_plan,
            tokens.CLOSE: self._close_job,
            tokens.FAILURE: self._failure,
            tokens.ERROR: self._error,
            tokens.TURN: self._reply_and_receive,
            tokens.TRAFFIC: self._traffic,
            tokens.GIVE_BACK: give_back_memory,
        }
        for token, function in functions.items():
            register_named_function(token, function)

    def _find_secret(self, hello: Hello) -> bytes | None:
        job = self._jobs.get(hello.job)
        return None if job is None else job.secret

    def _fingerprint(self, job_id: np.ndarray) -> bytes:
        return fingerprint(self._secret, job=int(job_id))

    def _open(self, job_id: np.ndarray, secret: np.ndarray) -> bytes:
        """Start to serve a job, and return this server's endpoint as JSON.

        If an earlier chief has left the job open, its connections and loops end.
        """
        with self._lock:
            before = self._jobs.pop(int(job_id), None)
            connections = self._connections_of_plan(int(job_id), None)
            self._jobs[int(job_id)] = _JobState(self._secret or _bytes(secret))
        for connection in connections:
            connection.close()
        for session in before.plan_sessions.values() if before else ():
            session.close_when_idle()
        return self.listener.endpoint(UNKNOWN_HOST).to_json().encode()

    def _install(self, job_id: np.ndarray, service: np.ndarray, graph: np.ndarray) -> np.int64:
        described = Service.from_json(_bytes(service).decode())
        session = _PlanSession(described, _bytes(graph), target=self._target(), device=self._device)
        with self._lock:
            replaced = self._jobs[int(job_id)].plan_sessions.pop(str(described.plan_id), None)
            self._jobs[int(job_id)].plan_sessions[str(described.plan_id)] = session
        if replaced is not None:
            replaced.close_when_idle()
        return np.int64(1)

    def _remove_plan(self, job_id: np.ndarray, plan_id: np.ndarray) -> np.int64:
        """End the connections and the loop of a plan that is no longer used."""
        with self._lock:
            job = self._jobs.get(int(job_id))
            session = job.plan_sessions.pop(str(plan_id), None) if job else None
            connections = self._connections_of_plan(int(job_id), int(plan_id))
        for connection in connections:
            connection.close()
        if session is not None:
            session.close_when_idle()
        return np.int64(1)

    def _connections_of_plan(self, job_id: int, plan_id: int | None) -> list[Connection]:
        return [
            served.connection
            for served in self._connections.values()
            if served.service.job_id == job_id and plan_id in (None, served.service.plan_id)
        ]

    def _close_job(self, job_id: np.ndarray) -> np.int64:
        with self._lock:
            job = self._jobs.pop(int(job_id), None)
            connections = self._connections_of_plan(int(job_id), None)
        for connection in connections:
            connection.close()
        for session in job.plan_sessions.values() if job else ():
            session.cancel()
        return np.int64(1)

    def _failure(self, job_id: np.ndarray) -> bytes:
        job = self._jobs.get(int(job_id))
        return (job.failure if job else "").encode()

    def _error(self, job_id: np.ndarray, plan_id: np.ndarray) -> bytes:
        """Return the recent error of a function of a plan; several workers may ask for it."""
        job = self._jobs.get(int(job_id))
        when_s, text = job.errors.get(int(plan_id), (0.0, "")) if job else (0.0, "")
        return text.encode() if time.monotonic() - when_s < RECENT_ERROR_S else b""

    def _traffic(self, job_id: np.ndarray) -> np.ndarray:
        """Return the bytes received and sent over connections of a job."""
        with self._lock:
            job, connections = (
                self._jobs.get(int(job_id)),
                self._connections_of_plan(int(job_id), None),
            )
            received = sum(connection.received_bytes for connection in connections)
            sent = sum(connection.sent_bytes for connection in connections)
            ended = (job.received_bytes, job.sent_bytes) if job else (0, 0)
        return np.array([received + ended[0], sent + ended[1]], np.int64)

    def _serve(self, connection: Connection, hello: Hello) -> None:
        """Run the loop of the plan that a worker requests, on the connection's own thread."""
        with self._lock:
            job = self._jobs.get(hello.job)
            session = job.plan_sessions.get(hello.plan) if job else None
            if job is None or session is None:
                logger.warning("closed the connection of %s: this server lacks its plan", hello)
                connection.close()
                return
            if len(self._connections) >= self._max_connections:
                self._close_longest_idle()
            number = next(self._numbers)
            self._connections[number] = _ServedConnection(connection, session.service)
        try:
            session.run(number)
        except (tf.errors.OpError, RuntimeError) as error:  # RuntimeError: the session is closed
            if self._jobs.get(hello.job) is job:  # else the job has ended, and its loops too
                self._record_failure(job, session, error)
                logger.warning("service loop of %s failed: %s", hello, job.failure)
        finally:
            with self._lock:
                del self._connections[number]
                job.received_bytes += connection.received_bytes
                job.sent_bytes += connection.sent_bytes
                self._waiting.pop(number, None)
            connection.close()

    @staticmethod
    def _record_failure(job: _JobState, session: _PlanSession, error: Exception) -> None:
        job.failure = f"{type(error).__name__}: {error}"
        if isinstance(error, tf.errors.OpError) and not isinstance(error, INTERRUPTIONS):
            text = json.dumps([error.error_code, error.message])
            job.errors[session.service.plan_id] = (time.monotonic(), text)

    def _close_longest_idle(self) -> None:
        number = next(iter(self._waiting.copy()), None)
        if number is not None and number in self._connections:
            self._waiting.pop(number, None)
            self._connections[number].connection.close()

    def _reply_and_receive(
        self, number: np.ndarray, header: np.ndarray, ids: np.ndarray, payload: np.ndarray
    ) -> tuple[Any, ...]:
        """Send a reply (none at first), then receive the next request."""
        served = self._connections[int(number)]
        connection = served.connection
        try:
            if header.size:
                connection.send(header, ids, payload)
            if served.reclaims:
                release_arrays()
            self._waiting[int(number)] = None
            try:
                request = connection.receive(served.limits)
            finally:
                self._waiting.pop(int(number), None)
            fields = request[0].tolist()
            if fields[Request.KIND] == Kind.LEAVE:
                connection.release_buffers()
            position = served.service.position(fields, payload_bytes=request[2].size)
        except ConnectionLost:
            return np.int32(CONNECTION_ENDED), *NO_REQUEST
        except (FrameError, ProtocolError) as error:
            logger.warning("closed the connection of %s: %s", connection.peer, error)
            connection.close()
            return np.int32(CONNECTION_ENDED), *NO_REQUEST
        return np.int32(position), *request


def _bytes(text: Any) -> bytes:
    """Return the bytes of a scalar string, as TensorFlow passes it to Python."""
    return bytes(text.item() if isinstance(text, np.ndarray) else text)
