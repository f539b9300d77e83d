"""Joins a cluster of which a task knows one address, before TensorFlow is imported."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from tfps.cluster.address import join_address, split_address
from tfps.cluster.announcement import register_listener
from tfps.cluster.exit_status import TEMPORARY_STATUS
from tfps.cluster.ports import PortLease, lease_ports
from tfps.cluster.proxies import exclude_from_proxies
from tfps.cluster.spec import TF_CONFIG, ClusterSpec
from tfps.cluster.timeout import (
    CHIEF_TIMEOUT_S,
    CONNECT_TIMEOUT_VARIABLE,
    DEFAULT_CHIEF_TIMEOUT_S,
    timeout_from_environment,
)
from tfps.cluster.waiting import (
    ATTEMPT_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    LONGEST_PAUSE_S,
    REPORT_INTERVAL_S,
    pauses_s,
)
from tfps.errors import ConfigError, ConnectTimeout
from tfps.package_versions import task_versions
from tfps.scheduler.registration import Registration
from tfps.scheduler.server import JOIN_REQUEST, SILENCE_S
from tfps.scheduler.settings import SCHEDULER, VARIABLES, SchedulerSettings
from tfps.terminal import write_message
from tfps.transport.direct.handshake import HANDSHAKE_S, HandshakeError, authenticate_client
from tfps.transport.direct.hello import Hello
from tfps.transport.direct.secret import secret_from_environment
from tfps.transport.direct.socket_options import watch_peer

HEARTBEAT_S = 5.0  # after which a task with no words says that it lives

logger = logging.getLogger(__name__)

_connection: SchedulerConnection | None = None  # of this process, which keeps it and its port


def join_cluster(*, roles: Collection[str], program: str) -> None:
    """Register with the scheduler, wait for the cluster, and set `TF_CONFIG` for this process.

    Does nothing if no scheduler is named. Afterwards the variables of the scheduler are unset, so
    that processes which this one starts do not register as well. A thread keeps this task
    registered, and learns the addresses of tasks that move.

    Args:
        roles: the types of tasks that this program can be; a lone one is the default.
        program: the program, for messages.

    Raises:
        ConfigError: a variable is invalid, or the scheduler refuses this task.
        ConnectTimeout: tasks are missing although the chief waited for them.
        SystemExit: another task waited too long, or the job has ended before it began.
    """
    global _connection
    settings = SchedulerSettings.from_environment(roles=roles, program=program)
    if settings is None:
        return
    connection = SchedulerConnection(settings)
    try:
        tf_config = connection.wait_for_cluster()
    except BaseException:
        connection.close()
        raise
    connection.follow()
    if tf_config["task"]["type"] == "chief":
        register_listener(connection.send_end)
    _connection = connection
    os.environ[TF_CONFIG] = json.dumps(tf_config)
    for name in VARIABLES:
        os.environ.pop(name, None)


def find_scheduler(spec: ClusterSpec) -> SchedulerConnection | None:
    """Return this process's connection to the scheduler that has given it a cluster, if any.

    Args:
        spec: the cluster, as it is now or was before tasks moved.
    """
    return _connection if _connection is not None and _connection.has_given(spec) else None


def present_cluster(spec: ClusterSpec) -> ClusterSpec:
    """Return a cluster with the present addresses, as far as a scheduler has told this process."""
    scheduler = find_scheduler(spec)
    return spec if scheduler is None else scheduler.cluster


def read_places(scheduler: str, *, secret: bytes | None, timeout_s: float) -> dict[str, Any]:
    """Ask a scheduler what ``/cluster`` shows, from any machine; proves the secret.

    Args:
        scheduler: its address.
        secret: the secret of the job; None for none.
        timeout_s: the seconds that it may take.

    Raises:
        HandshakeError: it has another secret.
        OSError: it does not reply.
    """
    with socket.create_connection(split_address(scheduler), timeout=timeout_s) as sock:
        _introduce(sock, "", secret=secret or b"", timeout_s=timeout_s)
        with sock.makefile("rb") as reply:
            places: dict[str, Any] = json.load(reply)
        return places


def _introduce(sock: socket.socket, text: str, *, secret: bytes, timeout_s: float) -> None:
    if sock.getsockname() == sock.getpeername():  # by chance, at an unused loopback port
        raise ConnectionRefusedError("connection refused")
    sock.sendall(JOIN_REQUEST)
    hello = Hello(job=0, worker=0, incarnation=0, role=SCHEDULER, plan=text)
    authenticate_client(sock, hello, secret=secret, deadline_s=time.monotonic() + timeout_s)


class SchedulerConnection:
    """Holds a task's connection to the scheduler, and the port that the task listens on.

    Args:
        settings: the scheduler, and what the task asks it for.

    Raises:
        ConfigError: a variable with a timeout or the secret is invalid.
    """

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._role, self._index = settings.role, settings.index
        self._is_return = False
        self._secret = secret_from_environment() or b""
        self._versions = task_versions()  # before the handshake, which has a deadline
        self._lease: PortLease | None = None
        self._variable, default_s = CHIEF_TIMEOUT_S, DEFAULT_CHIEF_TIMEOUT_S
        if self._role == "chief":
            self._variable, default_s = CONNECT_TIMEOUT_VARIABLE, CONNECT_TIMEOUT_S
        self._timeout_s = timeout_from_environment(self._variable, default_s=default_s)
        self._started_s = time.monotonic()
        self._name = f"the scheduler at {settings.scheduler}"
        self._missing = self._name
        self._socket: socket.socket | None = None
        self._received = b""  # the beginning of a message
        self._is_closed = self._is_joined = False
        self._listener: Callable[[int], object] | None = None
        self._status: int | None = None  # of the job, once the scheduler has told it
        self._words: dict[str, Any] = {}  # what the scheduler has to know of this task
        self._untold: set[str] = set()
        self._sent_s = 0.0
        self._lock = threading.Lock()  # of what is sent
        self._clusters: list[ClusterSpec] = []  # that the scheduler has sent, the newest last

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster with its present addresses, once the scheduler has sent it."""
        return self._clusters[-1]

    def has_given(self, spec: ClusterSpec) -> bool:
        """Return whether a cluster is that of the scheduler, as it is now or was earlier."""
        return any(known.jobs == spec.jobs for known in self._clusters)

    def wait_for_cluster(self) -> dict[str, Any]:
        """Register again and again until the scheduler sends the value of `TF_CONFIG`."""
        next_report_s = self._started_s + REPORT_INTERVAL_S
        pauses = pauses_s()
        while True:
            try:
                self._connect()
                for message in self._messages(timeout=self._check_time):
                    if tf_config := self._handle(message):
                        return tf_config
                reason = "it has closed the connection"
            except HandshakeError as error:
                raise ConfigError(str(error), source=self._name) from error
            except OSError as error:
                reason = error.strerror.lower() if error.strerror else str(error)
            self._missing = f"{self._name} ({reason})"
            if time.monotonic() >= next_report_s:
                next_report_s += REPORT_INTERVAL_S
                self._report()
            self._check_time()
            time.sleep(next(pauses))

    def follow(self) -> None:
        """Start the thread that keeps this task registered and learns new addresses."""
        assert self._socket is not None
        os.register_at_fork(after_in_child=self._leave)
        threading.Thread(target=self._follow, name="tfps-scheduler", daemon=True).start()

    def tell(self, **words: Any) -> None:
        """Tell the scheduler something of this task: now, and again whenever it has been away.

        Args:
            words: values for JSON, such as ``alive``, the tasks that a chief holds alive.
        """
        with self._lock:
            self._untold |= {key for key, word in words.items() if self._words.get(key) != word}
            self._words |= words

    def send_end(self, status: int) -> None:
        """Tell the scheduler how the job has ended.

        Raises:
            OSError: it is not there.
        """
        self.tell(end=status)
        self._send_untold()

    def on_end(self, listener: Callable[[int], object]) -> None:
        """Call a function with the job's status when the scheduler tells it, or if it has."""
        with self._lock:
            self._listener, status = listener, self._status
        if status is not None:
            listener(status)

    def close(self) -> None:
        """End the connection, and release the port."""
        self._leave()
        if self._lease is not None:
            self._lease.close()

    def _leave(self) -> None:
        self._is_closed = True
        if self._socket is not None:
            self._socket.close()

    def _follow(self) -> None:
        """Handle messages, and register again when the connection has ended."""
        refusal = ""
        while True:
            pause_s = LONGEST_PAUSE_S
            try:
                for message in self._messages(timeout=lambda: LONGEST_PAUSE_S):
                    self._handle(message)
            except ConfigError as error:
                # Not an end: the chief decides with which tasks it trains.
                if str(error) != refusal:
                    refusal = str(error)
                    logger.warning("the scheduler has no place for this task: %s", error)
                pause_s = REPORT_INTERVAL_S
            except OSError as error:
                logger.info("lost %s: %s", self._name, error)
            time.sleep(pause_s)
            if self._is_closed:
                return
            with contextlib.suppress(OSError):
                self._connect()
                with self._lock:
                    self._untold = set(self._words)

    def _send_untold(self) -> None:
        """Send the words that the scheduler does not know, or none to say that this task lives."""
        with self._lock:
            is_due = time.monotonic() - self._sent_s >= HEARTBEAT_S
            if self._is_joined and (self._untold or is_due):
                assert self._socket is not None
                words = {key: self._words[key] for key in self._untold}
                self._socket.sendall(json.dumps(words).encode() + b"\n")
                self._untold, self._sent_s = set(), time.monotonic()

    def _connect(self) -> None:
        settings = self._settings
        self._is_joined = False
        if self._socket is not None:
            self._socket.close()
        self._received = b""
        self._socket = sock = socket.create_connection(
            split_address(settings.scheduler), timeout=ATTEMPT_TIMEOUT_S
        )
        watch_peer(sock, silence_s=SILENCE_S)
        registration = Registration(
            role=self._role,
            index=self._index,
            address="" if self._role == "evaluator" else self._own_address(sock.getsockname()[0]),
            is_return=self._is_return,
            versions=self._versions,
        )
        _introduce(sock, registration.to_json(), secret=self._secret, timeout_s=HANDSHAKE_S)
        self._is_joined = True

    def _own_address(self, local_host: str) -> str:
        if self._clusters:  # it listens there
            assert self._role is not None
            assert self._index is not None
            return self._clusters[0].address(self._role, self._index)
        port = self._settings.port
        if port is None:
            if self._lease is None:
                self._lease = lease_ports(1, host=local_host)
                self._lease.share_with_this_process()
            (port,) = self._lease.ports
        return join_address(self._settings.host or local_host, port)

    def _messages(self, *, timeout: Callable[[], float]) -> Iterator[dict[str, Any]]:
        """Yield the scheduler's messages until it closes the connection.

        Args:
            timeout: returns the seconds to wait for the next one, at most `HEARTBEAT_S`. May raise.
        """
        assert self._socket is not None
        while True:
            while b"\n" in self._received:
                line, _, self._received = self._received.partition(b"\n")
                yield json.loads(line)
            self._send_untold()
            self._socket.settimeout(timeout())
            try:
                data = self._socket.recv(65_536)
            except TimeoutError:
                continue
            if not data:
                return
            self._received += data

    def _handle(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Handle a message; return the value of `TF_CONFIG` if it has that."""
        if "tf_config" in message:
            tf_config: dict[str, Any] = message["tf_config"]
            cluster = ClusterSpec.from_tf_config(tf_config, source=self._name)
            exclude_from_proxies(address for _, _, address in cluster.tasks())
            self._clusters.append(cluster)
            self._words["cluster"] = tf_config["cluster"]  # for the next scheduler
            return tf_config
        if "refused" in message:
            raise ConfigError(message["refused"], source=self._name)
        if "place" in message:
            self._role, self._index = message["place"]
            self._is_return = True
        elif "end" in message:
            self._end(message["end"])
        elif "waiting" in message and not self._clusters:
            self._missing = message["waiting"]
            self._report()
        return None

    def _end(self, status: int) -> None:
        if not self._clusters:
            write_message(f"the job ended with status {status} before all tasks had come")
            raise SystemExit(status)
        with self._lock:
            self._status, listener = status, self._listener
        if listener is not None:
            listener(status)

    def _report(self) -> None:
        waited_s = time.monotonic() - self._started_s
        write_message(f"waiting for {self._missing} ({waited_s:.0f} s of {self._timeout_s:.0f} s)")

    def _check_time(self) -> float:
        """Return the seconds to wait for a message; raises when the time of this task is up."""
        left_s = self._started_s + self._timeout_s - time.monotonic()
        if left_s > 0:
            return min(left_s, HEARTBEAT_S)
        text = f"still waiting after {self._timeout_s:g} s ({self._variable}) for {self._missing}"
        if self._settings.role == "chief":
            raise ConnectTimeout(f"{text}; start the missing tasks, or correct {SCHEDULER}")
        write_message(text)
        raise SystemExit(TEMPORARY_STATUS)
