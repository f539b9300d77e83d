"""Runs a command as a child process with a deadline; every failure contains its output."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

LOOK_EVERY_S = 0.05
REAP_TIMEOUT_S = 10.0


class Command:
    """A running command; leaving the ``with`` block ends it and its children.

    Use it to test a command that does not end by itself, or to send it signals.

    Args:
        arguments: the program and its arguments.
        deadline_s: the deadline in seconds from the start; a later wait fails with the output.
        environment: further environment variables; None removes one.
        folder: the working directory.
        input_text: the text of its standard input.

    Example:

    >>> import sys
    >>> with Command([sys.executable, "-c", "print('ready'); input()"], deadline_s=20) as command:
    ...     ready = command.wait_for("ready")
    ...     command.send(signal.SIGTERM)
    ...     command.wait()
    -15
    """

    def __init__(
        self,
        arguments: Sequence[str | os.PathLike[str]],
        *,
        deadline_s: float,
        environment: Mapping[str, str | None] | None = None,
        folder: str | os.PathLike[str] | None = None,
        input_text: str | None = None,
    ) -> None:
        self._arguments = [os.fspath(argument) for argument in arguments]
        self._ends_at = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._files = tempfile.TemporaryDirectory(prefix="tfps-test-")
        self._out, self._err = Path(self._files.name, "out"), Path(self._files.name, "err")
        source = Path(self._files.name, "in")
        source.write_text(input_text or "")
        variables = dict(os.environ)
        for name, value in (environment or {}).items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value
        # Without an input text the standard input stays open, as for a service.
        stdin = source.open("rb") if input_text is not None else subprocess.PIPE
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                self._arguments,
                stdin=stdin,
                stdout=out,
                stderr=err,
                env=variables,
                cwd=folder,
                start_new_session=True,
            )
        if input_text is not None:
            stdin.close()  # type: ignore[union-attr]
        self._family: dict[int, psutil.Process] = {}

    @property
    def output(self) -> str:
        """The standard output so far; complete after the end."""
        return self._out.read_text(errors="replace")

    @property
    def errors(self) -> str:
        """The error output so far."""
        return self._err.read_text(errors="replace")

    def wait(self) -> int:
        """Wait for the end and return the status; negative for a signal.

        Raises:
            AssertionError: it still runs at the deadline; the message contains its output.
        """
        while self.process.poll() is None:
            self._check_deadline("its end")
            self._remember_children()
            time.sleep(LOOK_EVERY_S)
        return self.process.returncode

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the output or the error output matches a regular expression.

        Args:
            pattern: the regular expression, to be found anywhere.

        Returns:
            The first match.

        Raises:
            AssertionError: there was no match until the deadline or the end of the command.
        """
        while True:
            ended = self.process.poll() is not None
            match = re.search(pattern, self.output) or re.search(pattern, self.errors)
            if match:
                return match
            if ended:
                raise AssertionError(
                    f"{pattern!r}: the command ended without this output\n{self.describe()}"
                )
            self._check_deadline(f"{pattern!r}")
            self._remember_children()
            time.sleep(LOOK_EVERY_S)

    def send(self, number: int) -> None:
        """Send a signal to the command's own process.

        Args:
            number: the signal, such as ``signal.SIGTERM``.
        """
        self._remember_children()
        self.process.send_signal(number)

    def children(self) -> list[psutil.Process]:
        """Return the running processes that the command has started, directly or indirectly."""
        self._remember_children()
        return [process for process in self._family.values() if _runs(process)]

    def describe(self) -> str:
        """Return the command, its status and its output, for an error message."""
        return (
            f"$ {' '.join(self._arguments)}\nstatus: {self.process.poll()}\n"
            f"--- output\n{self.output}\n--- errors\n{self.errors}"
        )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._remember_children()
        for process in [*self._family.values()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(REAP_TIMEOUT_S)
        if self.process.stdin is not None:
            self.process.stdin.close()
        if error is not None and "--- output" not in str(error):
            error.add_note(self.describe())
        self._files.cleanup()

    def _remember_children(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                self._family.setdefault(process.pid, process)

    def _check_deadline(self, description: str) -> None:
        if time.monotonic() > self._ends_at:
            raise AssertionError(
                f"{description}: waited {self._deadline_s:g} s; raise deadline_s if it needs longer"
                f"\n{self.describe()}"
            )


def run_command(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    deadline_s: float,
    environment: Mapping[str, str | None] | None = None,
    folder: str | os.PathLike[str] | None = None,
    input_text: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its status and outputs as text.

    Use it in tests instead of `subprocess.run`, to find processes that the command leaves behind.

    Args:
        arguments: the program and its arguments.
        deadline_s: the time limit in seconds.
        environment: further environment variables; None removes one.
        folder: the working directory.
        input_text: the text of its standard input.

    Returns:
        The exit status, the output and the error output, as of `subprocess.run`.

    Raises:
        AssertionError: it did not end in time, or left a process behind.

    Example:

    >>> run_command(["echo", "ready"], deadline_s=20).stdout.strip()
    'ready'
    """
    command = Command(
        arguments,
        deadline_s=deadline_s,
        environment=environment,
        folder=folder,
        input_text=input_text,
    )
    with command:
        status = command.wait()
        ends_at = time.monotonic() + REAP_TIMEOUT_S
        while (left := command.children()) and time.monotonic() < ends_at:
            time.sleep(LOOK_EVERY_S)
        if left:
            names = [" ".join(process.cmdline()) for process in left]
            raise AssertionError(
                f"processes: received {names} after the end, expected none\n{command.describe()}"
            )
        return subprocess.CompletedProcess(
            list(arguments), status, stdout=command.output, stderr=command.errors
        )


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
