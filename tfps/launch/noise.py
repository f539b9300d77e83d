"""Send the lines of libraries to the task's log, so that the terminal shows only the user's."""

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

_installed: NoiseRedirection | None = None


class NoiseRedirection:
    """Redirects this process's error output (file number 2) through a filter of library lines.

    Python's `sys.stderr` still writes to the original file, so that tracebacks, prints and progress
    bars see a terminal. Only lines of C and C++ code pass the filter. It is a process of its own,
    so it still writes the last lines if this process crashes.

    Args:
        log_path: the file for the libraries' lines.
    """

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        sys.stderr.flush()
        self._original = os.dup(2)
        self._filter = subprocess.Popen(
            [sys.executable, "-I", "-S", noise_filter.__file__, str(log_path)],
            stdin=subprocess.PIPE,
            stdout=self._original,
            start_new_session=True,  # so that it outlives the task's process group
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
        logging.getLogger("tensorflow").addFilter(self._write_record)

    def close(self) -> None:
        """Restore file number 2 and wait until the filter has passed on the last lines."""
        if self._filter.returncode is not None:
            return
        with contextlib.suppress(ValueError):  # the stream was closed
            self._stream.flush()
        os.dup2(self._original, 2)  # closes the pipe's last write end of this process
        with contextlib.suppress(subprocess.TimeoutExpired):  # a child holds the pipe open
            self._filter.wait(DRAIN_S)

    def _write_record(self, record: logging.LogRecord) -> bool:
        """Write a record of TensorFlow's Python code to the file, and nowhere else."""
        self._log.handle(record)
        return False


def install_noise_filter(log_path: Path) -> NoiseRedirection:
    """Send the lines of libraries to a file from now on; a second call changes nothing.

    Call it before TensorFlow is imported, in processes that run a user's script.

    Args:
        log_path: the file to append to.

    Returns:
        The redirection; it closes itself when the process ends.
    """
    global _installed
    if _installed is None:
        _installed = NoiseRedirection(log_path)
        atexit.register(_installed.close)
    return _installed
