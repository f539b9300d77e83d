"""Runs the scheduler: connections of tasks, and HTTP requests, at one port."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from tfps.cluster.address import is_loopback, split_address
from tfps.cluster.waiting import REPORT_INTERVAL_S
from tfps.errors import ListenError
from tfps.package_versions import version_differences
from tfps.scheduler.places import Places
from tfps.scheduler.registration import Registration
from tfps.scheduler.task_place import TaskPlace
from tfps.scheduler.task_words import TaskWords, printable
from tfps.transport.direct.connection import ConnectionLost
from tfps.transport.direct.handshake import HANDSHAKE_S, authenticate_server
from tfps.transport.direct.socket_options import watch_peer

# After this request line of HTTP both sides go on with the handshake of tasks.
JOIN_REQUEST = b"JOIN / HTTP/1.0\r\n\r\n"
SILENCE_S = 15  # after which a task may be lost, and TCP ends the connection to a lost machine
TICK_S = 0.25
MAX_LINE_BYTES = 65_536
BACKLOG = 256
# The most connections of clients that have not registered, and the longest time of one.
MAX_UNREGISTERED = 200
UNREGISTERED_S = 30.0

Jobs = dict[str, list[str]]


class SchedulerServer(socketserver.ThreadingTCPServer):
    """Gives places to the tasks that connect, and tells them the cluster once it is complete.

    They are told again whenever a task has come back at another address.

    Args:
        address: where it listens, as ``host:port``.
        places: the places of the cluster.
        secret: the job's secret; empty for none.
        versions: the versions that the tasks have to share; those that are None are not compared.
        report: called with a line about each task that comes, goes or is refused.
        on_end: called with the status of the job that the chief reports at its end, or after it a
            task that it has told.

    Raises:
        ListenError: it cannot listen at the address.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = BACKLOG

    def __init__(
        self,
        address: str,
        places: Places,
        *,
        secret: bytes,
        versions: Mapping[str, str | None],
        report: Callable[[str], None],
        on_end: Callable[[int], None],
    ) -> None:
        self.secret, self._report, self._on_end = secret, report, on_end
        self._versions = {name: version for name, version in versions.items() if version}
        self._places = places
        self._lock = threading.Lock()
        self._last_number = 0
        self._ticked_s = time.monotonic()
        self._has_ended = False  # by the word of a task
        self._connections: dict[int, socket.socket] = {}
        self._unregistered: dict[socket.socket, float] = {}  # when they have connected
        self._heard_s: dict[int, float] = {}  # when a task has said something
        self._next_report_s: dict[int, float] = {}  # of the tasks that do not know the cluster yet
        self._told: dict[int, Jobs] = {}  # what each of the others knows
        host, port = split_address(address)
        try:
            (self.address_family, _, _, _, listening), *_ = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
            super().__init__((str(listening[0]), port), _Handler)
        except OSError as error:
            raise ListenError(_listen_text(address, error)) from error
        threading.Thread(target=partial(self.serve_forever, TICK_S), daemon=True).start()

    @property
    def has_chief(self) -> bool:
        """Whether a chief is connected."""
        return self._places.places[0].is_held

    def serve_task(self, connection: socket.socket, *, host: str, text: str) -> None:
        """Serve a task until its connection ends.

        Args:
            connection: an authenticated connection.
            host: the host that it comes from.
            text: the task's registration.
        """
        with self._lock:
            self._last_number += 1
            number = self._last_number
            self._unregistered.pop(connection, None)
            self._connections[number] = connection
            self._heard_s[number] = time.monotonic()
        try:
            self._register(text, host=host, number=number)
            self._read(connection, number, host=host)
        finally:
            with self._lock:
                self._connections.pop(number, None)
                self._heard_s.pop(number, None)
                self._next_report_s.pop(number, None)
                self._told.pop(number, None)
                self._update(self._places.end(number, now_s=time.monotonic()))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, unless too many that are no tasks are open."""
        with self._lock:
            is_one_too_many = len(self._unregistered) >= MAX_UNREGISTERED
            if not is_one_too_many:
                self._unregistered[request] = time.monotonic()
        if is_one_too_many:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, which is then no longer counted."""
        with self._lock:
            self._unregistered.pop(request, None)
        super().shutdown_request(request)

    def report(self, text: str) -> None:
        """Report an event, without the control characters that a peer may have sent."""
        self._report(printable(text))

    def _register(self, text: str, *, host: str, number: int) -> None:
        with self._lock:
            try:
                task = Registration.from_json(text, host=host, number=number)
                if differences := version_differences(
                    {name: task.versions.get(name) for name in self._versions}, own=self._versions
                ):
                    raise ValueError(
                        f"versions: received {', '.join(differences)}, expected those of the "
                        "scheduler; install the same for all tasks"
                    )
            except ValueError as error:
                self._refuse(number, str(error))
            else:
                self._next_report_s[number] = time.monotonic() + REPORT_INTERVAL_S
                self._update(self._places.register(task, now_s=time.monotonic()))

    def service_actions(self) -> None:
        """Give places whose time has come, and tell waiting tasks which ones are missing."""
        with self._lock:
            now_s, before_s, self._ticked_s = time.monotonic(), self._ticked_s, time.monotonic()
            if now_s - before_s > SILENCE_S / 3:  # this process was stopped, and heard no task
                self._heard_s = dict.fromkeys(self._heard_s, now_s)
            silent = [number for number, at_s in self._heard_s.items() if now_s - at_s > SILENCE_S]
            self._update(self._places.record_silence(silent, now_s=now_s))
            for connection, since_s in self._unregistered.items():
                if now_s - since_s > UNREGISTERED_S:
                    _shut(connection)
            for number, due_s in self._next_report_s.items():
                if now_s >= due_s:
                    self._next_report_s[number] = now_s + REPORT_INTERVAL_S
                    self._send(number, waiting=self._places.describe_missing())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of a connection, but not that a peer has closed it."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def end(self, status: int) -> None:
        """Tell tasks how the job has ended, and stop listening.

        If no task has told that, those that wait are told only: the others may still train.
        """
        with self._lock:
            for number in self._connections if self._has_ended else self._next_report_s:
                self._send(number, end=status)
        self.shutdown()
        self.server_close()

    def describe(self) -> dict[str, Any]:
        """Return the places as a value for JSON."""
        now_s, now = time.monotonic(), time.time()
        places = self._places

        def since(place: TaskPlace) -> str:
            moment = datetime.fromtimestamp(now - now_s + place.since_s, UTC)
            return moment.isoformat(timespec="seconds")

        return {
            "is_complete": places.is_complete,
            "waiting": len(places.waiting),
            "places": [
                {
                    "role": place.role,
                    "index": place.index,
                    "state": place.state.value,
                    "address": (place.holder and place.holder.address) or None,
                    "versions": place.holder and place.holder.versions,
                    "since": place.holder and since(place),
                }
                for place in places.places
            ],
        }

    def _read(self, connection: socket.socket, number: int, *, host: str) -> None:
        # An error: the connection has ended.
        with contextlib.suppress(OSError), connection.makefile("rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                try:
                    words = TaskWords.from_json(line)
                except ValueError as error:
                    self.report(f"ended a connection from {host}, no message of a task: {error}")
                    return
                with self._lock:
                    self._handle(words, number)

    def _handle(self, words: TaskWords, number: int) -> None:
        """Handle what a task tells; under the lock."""
        self._heard_s[number] = now_s = time.monotonic()
        if words.cluster is not None:
            self._update(self._places.restore_cluster(words.cluster, now_s=now_s))
        if words.alive is not None:
            self._update(self._places.record_alive_tasks(number, words.alive, now_s=now_s))
        if words.end is not None and self._places.knows_end(number):
            self._has_ended = True
            self._on_end(words.end)

    def _update(self, places: Places) -> None:
        """Take over the places that follow, and send what tasks have to know; under the lock."""
        before, after = _held_places(self._places), _held_places(places)
        self._places = places
        for refusal in places.refusals:
            self._refuse(refusal.number, refusal.reason)
        for number in before.keys() - after.keys():
            self.report(f"{before[number]} is gone")
            self._close(number)  # if it was silent: should it live, it registers again
        for number in after.keys() - before.keys():
            self.report(f"{after[number]} has come")
            self._send(number, place=[after[number].role, after[number].index])
        jobs = places.jobs() if places.is_complete else None
        for number, place in after.items():
            # A new chief connects to all tasks, and so waits for those that are lost.
            is_new = place.role == "chief" and number in self._next_report_s
            if is_new and not (places.is_full or (place.holder and place.holder.is_return)):
                continue
            if jobs is not None and self._told.get(number) != jobs:
                self._next_report_s.pop(number, None)
                self._told[number] = jobs
                task = {"type": place.role, "index": place.index}
                self._send(number, tf_config={"cluster": jobs, "task": task})

    def _refuse(self, number: int, reason: str) -> None:
        self.report(f"refused a task: {reason}")
        self._next_report_s.pop(number, None)
        self._send(number, refused=reason)
        self._close(number)

    def _close(self, number: int) -> None:
        if number in self._connections:
            _shut(self._connections[number])

    def _send(self, number: int, **message: Any) -> None:
        if number in self._connections:
            with contextlib.suppress(OSError):  # its thread notices that the task is lost
                self._connections[number].sendall(json.dumps(message).encode() + b"\n")


class _Handler(BaseHTTPRequestHandler):
    """Handles one connection: of a task, or with a request of HTTP."""

    server: SchedulerServer
    timeout = HANDSHAKE_S
    server_version, sys_version = "tfps", ""

    def do_JOIN(self) -> None:
        try:
            hello = authenticate_server(
                self.connection,
                find_secret=lambda _: self.server.secret,
                deadline_s=time.monotonic() + HANDSHAKE_S,
            )
        except ConnectionLost as error:
            self.server.report(f"refused a connection from {self._host}: {error}")
            return
        if not hello.plan:  # a reader, which takes no place
            with contextlib.suppress(OSError):
                self.connection.sendall(json.dumps(self.server.describe()).encode())
            return
        self.connection.settimeout(None)
        watch_peer(self.connection, silence_s=SILENCE_S)
        self.server.serve_task(self.connection, host=self._host, text=hello.plan)

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._reply("text/plain", "ok\n")
        elif self.path != "/cluster":
            self.send_error(HTTPStatus.NOT_FOUND, "expected /cluster or /healthz")
        elif self.server.secret and not self._is_own_machine():
            self.send_error(HTTPStatus.FORBIDDEN, "ask on the scheduler's machine")
        else:
            self._reply("application/json", json.dumps(self.server.describe(), indent=1) + "\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as named there
        """Write no line for each request."""

    def _is_own_machine(self) -> bool:
        return is_loopback(self._host) or self.client_address[0] == self.connection.getsockname()[0]

    @property
    def _host(self) -> str:
        return str(self.client_address[0]).removeprefix("::ffff:")  # IPv4 at a socket of IPv6

    def _reply(self, kind: str, text: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # its thread then reads the end
        connection.shutdown(socket.SHUT_RDWR)


def _listen_text(address: str, error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        port = split_address(address)[1]
        return (
            f"--listen: received {address}, expected an address of this machine ({reason}); give "
            f"0.0.0.0:{port} for all addresses that it has, or [::]:{port} with those of IPv6"
        )
    return (
        f"--listen: received {address}, expected a free port of this machine ({reason}); end the "
        "process at this port, for example another scheduler, or give another address"
    )


def _held_places(places: Places) -> dict[int, TaskPlace]:
    """Return the places that have a task, by the numbers of the tasks."""
    return {place.holder.number: place for place in places.places if place.is_held and place.holder}
