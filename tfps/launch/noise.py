"""Keeps a terminal for what the user wrote: libraries' own lines go to the task's log."""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import subprocess
import sys
from pathlib import Path

from tfps.launch import noise_filter

DRAIN_S = 2.0  # for the last lines; the filter needs milliseconds

_installed: Noise | None = None


class Noise:
    """The redirection of one process's file number 2; `install_noise_filter` makes it.

    Python's own `sys.stderr` keeps writing to where it wrote before, so that tracebacks, prints
    and progress bars still see a terminal. Only what C and C++ code writes passes the filter,
    which is a process of its own: it still has the last lines when this one crashes.

    Args:
        log_path: where the libraries' lines go.
    """

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        sys.stderr.flush()
        self._original = os.dup(2)
        self._filter = subprocess.Popen(
            [sys.executable, "-I", "-S", noise_filter.__file__, str(log_path)],
            stdin=subprocess.PIPE,
            stdout=self._original,
            start_new_session=True,  # what ends the task with all its children leaves it be
        )
        assert self._filter.stdin is not None
        os.dup2(self._filter.stdin.fileno(), 2)
        self._filter.stdin.close()
        self._previous = sys.stderr
        self._stream = io.TextIOWrapper(
            io.FileIO(os.dup(self._original), "w"),
            encoding=getattr(self._previous, "encoding", None) or "utf-8",
            errors="backslashreplace",
            line_buffering=True,
            write_through=True,
        )
        sys.stderr = self._stream
        self._log = logging.FileHandler(log_path, delay=True)
        self._log.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
        logging.getLogger("tensorflow").addFilter(self._take)

    def close(self) -> None:
        """Restore file number 2 and wait until the filter has passed on the last lines."""
        if self._filter.returncode is not None:
            return
        with contextlib.suppress(ValueError):  # somebody closed the stream
            self._stream.flush()
        os.dup2(self._original, 2)  # closes the pipe's last write end of this process
        with contextlib.suppress(subprocess.TimeoutExpired):  # a child holds the pipe open
            self._filter.wait(DRAIN_S)

    def _take(self, record: logging.LogRecord) -> bool:
        """Write what TensorFlow's Python code logs to the file, and to nowhere else."""
        self._log.handle(record)
        return False


def install_noise_filter(log_path: Path) -> Noise:
    """Send libraries' own lines to a file from now on; a second call changes nothing.

    Call it before TensorFlow is imported, in processes that run a user's script.

    Args:
        log_path: the file; it is appended to.

    Returns:
        The redirection; it closes itself when the process ends.
    """
    global _installed
    if _installed is None:
        _installed = Noise(log_path)
        atexit.register(_installed.close)
    return _installed
