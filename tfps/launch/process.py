"""One task as a child process: its start, its signals, its log and its end."""

from __future__ import annotations

import contextlib
import os
import queue
import signal as signals
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

from tfps.cluster.exit_status import name_of_status
from tfps.errors import ClusterError
from tfps.launch.noise_filter import LineSorter
from tfps.stop_signals import STOP_SIGNALS

POLL_INTERVAL_S = 0.005
LAST_LINES = 20  # enough for a traceback, short enough for a terminal
LAST_RAW_LINES = 5  # of libraries, if there are no others
LAST_BYTES = 64 * 1024  # read from a log's end for them
REAP_TIMEOUT_S = 10.0  # after SIGKILL; only a process stuck in the kernel takes longer

_start_requests: queue.SimpleQueue[tuple[Future[Any], dict[str, Any]]] = queue.SimpleQueue()
_starter_lock = threading.Lock()
_starter: threading.Thread | None = None


class Process(Protocol):
    """The leader of a process group, such as a `subprocess.Popen`."""

    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Return the exit status of the process (negative: a signal), None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its status.

        Raises:
            subprocess.TimeoutExpired: the process still runs after the timeout.
        """


class TaskProcess:
    """Controls a task that runs as a child process, in a process group of its own.

    A terminal's Ctrl-C reaches only the parent, which decides what to do with the tasks.

    Args:
        name: the task's name, for example ``worker 0``.
        process: the leader of the group.
        log_path: the file with its output.
    """

    def __init__(self, *, name: str, process: Process, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.expected_to_end = False  # whether its end is no failure
        self._process = process

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self._process.pid)

    @property
    def output(self) -> IO[bytes] | None:
        """The read end of the output if it is a pipe, else None."""
        return self._process.stdout

    @property
    def errors(self) -> IO[bytes] | None:
        """The read end of the error output if it is a pipe, else None."""
        return self._process.stderr

    def status(self) -> int | None:
        """Return the exit status (negative: the signal that ended it), None while it runs."""
        status = self._process.poll()
        return None if status is None else int(status)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the end of the task; return the status, or None after the timeout."""
        try:
            return int(self._process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            return None

    def send(self, signal: int) -> None:
        """Send a signal to the process and its children, unless it has ended."""
        if self.status() is None:
            with contextlib.suppress(ProcessLookupError):  # ended since the line above
                os.killpg(self.pid, signal)

    def suspend(self) -> None:
        """Stop the process and its children; return when it is stopped.

        Its threads on other cores go on for a moment after the signal was sent.
        """
        self.send(signals.SIGSTOP)
        ends_at = time.monotonic() + REAP_TIMEOUT_S
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            while process.status() != psutil.STATUS_STOPPED and self.status() is None:
                if time.monotonic() > ends_at:
                    raise ClusterError(
                        f"{self.name}: still runs {REAP_TIMEOUT_S:g} s after SIGSTOP, expected it "
                        "to be stopped; kill it, or try again when the machine is less busy"
                    )
                time.sleep(POLL_INTERVAL_S)

    def is_suspended(self) -> bool:
        """Return whether the process is stopped by SIGSTOP."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        return False

    def kill(self) -> int | None:
        """Kill the process and its children, and reap it; return its status."""
        self.expected_to_end = True
        # Also if it has ended: its children may have stayed in its group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signals.SIGKILL)
        return self.wait(REAP_TIMEOUT_S)

    def last_lines(self, count: int = LAST_LINES) -> list[str]:
        """Return the end of the task's log, without the lines of libraries."""
        return last_lines(self.log_path, count)

    def report(self, ending: str) -> str:
        """Return a message: the task's name, its ``ending``, and the last lines of its log."""
        if self.log_path == Path(os.devnull):
            return f"{self.name} {ending}"
        written = self.last_lines() or last_lines(self.log_path, LAST_RAW_LINES, with_noise=True)
        lines = [f"  | {line}" for line in written] or ["  | (no output)"]
        head = f"{self.name} {ending}; its last lines:"
        return "\n".join([head, *lines, f"Its log: {self.log_path}"])


def start_program(
    *,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    log_path: Path,
    signals_wait: bool = False,
    **streams: Any,
) -> TaskProcess:
    """Start a program as a child of this process, in a session of its own.

    Args:
        name: the task's name, for example ``worker 0``.
        command: the program and its arguments.
        environment: all its environment variables.
        log_path: the file that its output is appended to, unless `streams` say otherwise.
        signals_wait: whether SIGINT and SIGTERM are blocked in it until it takes them
            (`tfps.stop_signals.unblock_signals`).
        streams: ``stdin``, ``stdout``, ``stderr`` and ``pass_fds`` of `subprocess.Popen`; without
            them it reads nothing, writes to the log, and inherits no other file.
    """
    with open(log_path, "ab") as log:
        process = _start(
            args=list(command),
            env=dict(environment),
            start_new_session=True,
            signals_wait=signals_wait,
            **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **streams},
        )
    return TaskProcess(name=name, process=process, log_path=log_path)


def describe_status(status: int) -> str:
    """Return a phrase that says how a process ended.

    Example:

    >>> describe_status(-9)
    'ended by SIGKILL'
    >>> describe_status(3)
    'ended with status 3'
    """
    return f"ended {'by' if status < 0 else 'with'} {name_of_status(status)}"


def last_lines(path: Path, count: int = LAST_LINES, *, with_noise: bool = False) -> list[str]:
    """Return the last lines of a log; none if it does not exist.

    Args:
        path: the log.
        count: the number of lines.
        with_noise: whether to include the lines of libraries.
    """
    if not path.exists():
        return []
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_BYTES))
        lines = file.read().splitlines()
    sorter = LineSorter()
    kept = [line for line in lines if with_noise or not sorter.is_noise(line)]
    return [line.decode(errors="replace") for line in kept[-count:]]


def _start(**arguments: Any) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lives as long as this process.

    Linux ends a child when the *thread* that started it ends, and the caller's thread may end.
    """
    global _starter
    with _starter_lock:
        if _starter is None or not _starter.is_alive():  # not alive: this is a fork of the parent
            _starter = threading.Thread(
                target=_run_start_requests, name="tfps-starter", daemon=True
            )
            _starter.start()
    future: Future[subprocess.Popen[bytes]] = Future()
    _start_requests.put((future, arguments))
    return future.result()


def _run_start_requests() -> None:
    while True:
        future, arguments = _start_requests.get()
        # A child inherits the blocked signals of its thread.
        blocked = STOP_SIGNALS if arguments.pop("signals_wait") else ()
        before = signals.pthread_sigmask(signals.SIG_BLOCK, blocked)
        try:
            future.set_result(subprocess.Popen(**arguments))
        except OSError as error:
            future.set_exception(error)
        finally:
            signals.pthread_sigmask(signals.SIG_SETMASK, before)
