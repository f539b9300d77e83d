"""Starts the tasks of a local cluster as forks of one process that has imported TensorFlow.

Importing TensorFlow costs seconds of CPU, is all that a task needs to start, and a fork shares the
memory. So the first cluster of a process starts a *fork server*, which imports TensorFlow once and
forks a process for each task. It stays idle when the last cluster has closed, so that the next one
starts immediately, and ends with the process.

It is not `multiprocessing`'s fork server: that one imports the user's script into every child (so
scripts need a ``__main__`` guard), there is one per process whatever the environment, and its
children share one output.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any

from tfps.errors import TaskFailed
from tfps.launch.environment import PARENT_PID
from tfps.launch.process import POLL_INTERVAL_S, TaskProcess, describe_status, start_program

# Libraries read variables with these beginnings when they are imported, not when they are used.
IMPORT_TIME_PREFIXES = (
    "CUDA_",
    "GLIBC_",
    "GRPC_",
    "KERAS_",
    "KMP_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "TF2_",
    "TF_",
    "XLA_",
)
# These differ between the tasks of a cluster, and are read after the fork.
LATER_VARIABLES = ("CUDA_VISIBLE_DEVICES", "TF_CONFIG")


class ForkServer:
    """A process that has imported TensorFlow and forks tasks from itself.

    Args:
        environment: its environment variables; each task gets its own.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.user_count = 0
        self.owner_pid = os.getpid()
        self._environment = {**environment, PARENT_PID: str(self.owner_pid)}
        self._folder = Path(tempfile.mkdtemp(prefix="tfps-fork-server-"))
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._processes: dict[int, ForkedProcess] = {}
        self._connection, server_end = Pipe()
        with server_end:
            self._process = start_program(
                name="fork server",
                command=[
                    *(sys.executable, "-P", "-m", "tfps.launch.fork_server_main"),
                    str(server_end.fileno()),
                ],
                environment=self._environment,
                log_path=self._folder / "log",
                pass_fds=[server_end.fileno()],
            )

    def start(self, *, name: str, environment: Mapping[str, str], log_path: Path) -> TaskProcess:
        """Start a task, as `tfps.launch.process.start_program` starts ``tfps serve``.

        It starts once the fork server has imported TensorFlow; this does not wait for it.

        Args:
            name: for example ``worker 0``.
            environment: all environment variables of the task.
            log_path: the file that its output is appended to.
        """
        log_path.touch()
        number = next(self._ids)
        process = self._processes[number] = ForkedProcess(self, number)
        differences = {
            variable: environment.get(variable)
            for variable in {*environment, *self._environment}
            if environment.get(variable) != self._environment.get(variable)
        }
        self._send_request(
            id=number, environment=differences, log_path=str(log_path.resolve()), folder=os.getcwd()
        )
        return ForkedTask(name=name, process=process, log_path=log_path)

    def cancel(self, number: int) -> None:
        """Kill a task that may not have started yet."""
        self._send_request(cancel=number)

    def read_messages(self) -> None:
        """Read the messages about starts and ends of tasks."""
        with self._lock:
            try:
                while self._connection.poll():
                    message = json.loads(self._connection.recv_bytes())
                    process = self._processes.get(message["id"])
                    if process is not None:
                        process.handle_message(message)
                    if "status" in message:
                        self._processes.pop(message["id"], None)
            except (EOFError, OSError):
                # The tasks ended with their server.
                for process in self._processes.values():
                    process.handle_message({"status": -signal.SIGKILL})

    def failures(self) -> list[TaskFailed]:
        """Return an error if the fork server ended unexpectedly."""
        status = self._process.status()
        if status is None or self._process.expected_to_end:
            return []
        return [TaskFailed(self._process.report(describe_status(status)))]

    def close(self) -> None:
        """Kill the fork server and its tasks; its log stays after a failure."""
        failed = self.failures()
        self._process.kill()
        self._connection.close()
        if not failed:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _send_request(self, **request: Any) -> None:
        # `read_messages` and `failures` report its end.
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._connection.send_bytes(json.dumps(request).encode())


class ForkedProcess:
    """A child of a fork server, as a `tfps.launch.process.Process`."""

    stdout: IO[bytes] | None = None  # its output is in its log
    stderr: IO[bytes] | None = None

    def __init__(self, server: ForkServer, number: int) -> None:
        self._server, self._number = server, number
        self._pid: int | None = None
        self._status: int | None = None

    def handle_message(self, message: Mapping[str, int]) -> None:
        """Read a message about this process; the first status counts."""
        self._pid = message.get("pid", self._pid)
        if self._status is None:
            self._status = message.get("status")

    @property
    def pid(self) -> int:
        """The process id; waits until the process has one.

        Raises:
            ProcessLookupError: the process ended before it had one.
        """
        while self.poll() is None and self._pid is None:
            time.sleep(POLL_INTERVAL_S)
        if self._pid is None:
            raise ProcessLookupError(f"task {self._number} of the fork server did not start")
        return self._pid

    def poll(self) -> int | None:
        """Return the exit status of the process (negative: a signal), None until it has one."""
        if self._status is None:
            self._server.read_messages()
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its status.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        ends_at = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if ends_at is not None and time.monotonic() > ends_at:
                raise subprocess.TimeoutExpired("tfps serve", timeout or 0.0)
            time.sleep(POLL_INTERVAL_S)
        return status

    def cancel_if_not_started(self) -> bool:
        """Cancel the start of this process if it has no id yet; return whether it has none."""
        if self.poll() is None and self._pid is None:
            self._server.cancel(self._number)
            self.handle_message({"status": -signal.SIGKILL})
        return self._pid is None


class ForkedTask(TaskProcess):
    """Represents a forked task, whose start can be cancelled before it has a process id."""

    _process: ForkedProcess

    def kill(self) -> int | None:
        """Kill the task, or cancel its start; return its status."""
        self.expected_to_end = True
        return self.status() if self._process.cancel_if_not_started() else super().kill()


_servers: dict[frozenset[tuple[str, str]], ForkServer] = {}
_servers_lock = threading.Lock()


@contextlib.contextmanager
def use_fork_server(environment: Mapping[str, str]) -> Iterator[ForkServer]:
    """Yield this process's fork server for an environment.

    The last server stays idle after its use, until this process ends.

    Args:
        environment: the tasks' environment variables; tasks share a server if those that libraries
            read when they are imported are the same.
    """
    # The key has the process id: a fork of this process needs its own connection.
    owned = import_time_variables(environment) | {("", str(os.getpid()))}
    with _servers_lock:
        server = _servers.get(owned)
        if server is None or server.failures():
            atexit.unregister(_close_all_servers)  # once only, and after the clusters that come now
            atexit.register(_close_all_servers)
            server = _servers[owned] = ForkServer(environment)
        server.user_count += 1
    try:
        yield server
    finally:
        with _servers_lock:
            server.user_count -= 1
            stays = None if server.failures() else server
            _close_idle_servers({server, *_servers.values()} - {stays})


def import_time_variables(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """Return the part of an environment that libraries read when they are imported.

    Example:

    >>> import_time_variables({"HOME": "/root", "TF_CONFIG": "{}", "OMP_NUM_THREADS": "1"})
    frozenset({('OMP_NUM_THREADS', '1')})
    """
    return frozenset(
        (name, value)
        for name, value in environment.items()
        if name.startswith(IMPORT_TIME_PREFIXES) and name not in LATER_VARIABLES
    )


def _close_all_servers() -> None:
    with _servers_lock:
        _close_idle_servers(_servers.values())


def _close_idle_servers(servers: Iterable[ForkServer]) -> None:
    for server in [
        each for each in servers if not each.user_count and each.owner_pid == os.getpid()
    ]:
        for key in [key for key, known in _servers.items() if known is server]:
            del _servers[key]
        server.close()
