"""Show the lines of many tasks on one terminal, each with the task's name."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tfps import terminal
from tfps.launch.noise_filter import LineSorter

POLL_INTERVAL_S = 0.1  # at the logs' ends; a line may be this late
# Messages of a serving task stay in its log, since the starter reports; except its warnings.
OWN_LINES = re.compile(rb"tfps: (?!warning: |error: )")

LINE_FILE = "TFPS_LINE_FILE"  # the number of the file that two processes on a terminal share

_write_lock = threading.Lock()  # one line at a time, whichever thread has it


class LogFollower:
    """Copies new lines of tasks' logs to a stream, without those of libraries.

    The tasks write to files, not to pipes of this process, so that a log is complete and a task can
    go on even if this process ends.

    Args:
        logs: the log of each task, by the task's name.
        target: the file number to write to.
    """

    def __init__(self, logs: dict[str, Path], *, target: int) -> None:
        self._logs = {name: _LogTail(name, path) for name, path in logs.items()}
        self._target = target
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tfps-logs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Copy the rest of the logs and stop."""
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stop.wait(POLL_INTERVAL_S):
            self._copy(at_end=False)
        self._copy(at_end=True)

    def _copy(self, *, at_end: bool) -> None:
        for follower in self._logs.values():
            write_prefixed(follower.name, follower.new_lines(at_end=at_end), target=self._target)


class _LogTail:
    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0
        self._partial = b""
        self._sorter = LineSorter()

    def new_lines(self, *, at_end: bool) -> list[bytes]:
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        if at_end and self._partial:
            lines.append(self._partial)
            self._partial = b""
        return [
            line for line in lines if not self._sorter.is_noise(line) and not OWN_LINES.match(line)
        ]


def write_prefixed(name: str, lines: Iterable[bytes], *, target: int) -> None:
    """Write lines to a file number, each with the task's name before it."""
    with _write_lock, contextlib.suppress(BrokenPipeError):  # the reader has gone
        for line in lines:
            # Progress bars rewrite their line; without a terminal only the last state is useful.
            text = line.rstrip(b"\r").rpartition(b"\r")[2]
            begins = terminal.fresh_line() if os.isatty(target) else ""
            data = f"{begins}[{name}] ".encode() + text + b"\n"
            while data:
                data = data[os.write(target, data) :]


def prefix_stream(name: str, source: IO[bytes], *, target: int) -> threading.Thread:
    """Copy a pipe line by line to a file number, each with the task's name, in a thread."""

    def copy() -> None:
        for line in source:
            write_prefixed(name, [line.rstrip(b"\n")], target=target)

    thread = threading.Thread(target=copy, name=f"tfps-output-{name}", daemon=True)
    thread.start()
    return thread


def write_message(text: str) -> None:
    """Write a message of the launcher to the error output."""
    with _write_lock:
        terminal.write_message(text)


def share_terminal() -> None:
    """Share the state of the terminal's last line with the starter, if the starter asks for it."""
    number = os.environ.pop(LINE_FILE, "")
    if number:
        terminal.share_line(int(number))
