"""Appends a line to a job's record each second, on a thread of the chief."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfps.errors import ConfigError
from tfps.folder import folder_problem
from tfps.observe.cluster_warning import WINDOW_S, find_warnings
from tfps.observe.record import RECORD_FILE, format_line, parse_line, thin_lines

RECORD = "TFPS_RECORD"  # the folder of the record
PERIOD_S = 1.0
THIN_PERIOD_S = 600.0
CLOSE_TIMEOUT_S = 5.0  # a line takes milliseconds

logger = logging.getLogger(__name__)

_file_lock = threading.Lock()  # strategies of this process may share a folder


def find_record_folder() -> Path | None:
    """Return the folder that ``TFPS_RECORD`` names; None without one.

    Raises:
        ConfigError: it cannot be written to.
    """
    text = os.environ.get(RECORD, "").strip()
    if not text:
        return None
    if problem := folder_problem(Path(text), name=RECORD):
        raise ConfigError(problem)
    return Path(text)


class Recorder:
    """Appends what a function returns to the record in a folder, once a second.

    It warns of what the newest lines show, of each kind once. A record that cannot be written ends
    nothing: that is said once.

    Args:
        folder: the folder of the record; the first line makes it.
        read: returns the fields of a line, or None if there is nothing to record any more.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recorder = Recorder(Path(folder), read=lambda: {"stats": {}})
    ...     recorder.start()
    ...     recorder.close()
    ...     len((Path(folder) / "metrics.jsonl").read_text().splitlines())
    1
    """

    def __init__(self, folder: Path, *, read: Callable[[], Mapping[str, Any] | None]) -> None:
        self._path, self._read = folder / RECORD_FILE, read
        self._began_s = round(time.time(), 3)
        self._thinned_s = time.monotonic()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfps-record", daemon=True)
        self._has_warned = False
        self._newest: deque[dict[str, Any]] = deque(maxlen=int(WINDOW_S / PERIOD_S))
        self._said: set[str] = set()  # the kinds of warnings

    def start(self) -> None:
        """Start the thread; call it once only."""
        self._thread.start()

    def close(self) -> None:
        """Write the last line, and end the thread; later calls do nothing."""
        if not self._ends.is_set():
            self._ends.set()
            if self._thread is not threading.current_thread():
                self._thread.join(CLOSE_TIMEOUT_S)
            self._write()

    def _run(self) -> None:
        due_s = time.monotonic() + PERIOD_S
        while not self._ends.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s + PERIOD_S, time.monotonic())
            if not self._write():
                return

    def _write(self) -> bool:
        """Write a line; return whether there may be more."""
        try:
            fields = self._read()
            if fields is None:
                return False
            line = format_line(fields, now_s=time.time(), began_s=self._began_s)
            with _file_lock:
                self._append(line)
                if time.monotonic() - self._thinned_s > THIN_PERIOD_S:
                    self._thinned_s = time.monotonic()
                    self._thin()
            self._warn(line)
        except Exception as error:  # noqa: BLE001 - a record must not end a job
            if not self._has_warned:
                self._has_warned = True
                logger.warning("the record %s has gaps: %s", self._path, error)
        return True

    def _warn(self, line: str) -> None:
        """Say what the newest lines show, each kind once."""
        fields = parse_line(line)
        if fields is not None:
            self._newest.append(fields)
        for each in find_warnings(self._newest):
            if each.kind not in self._said:
                self._said.add(each.kind)
                logger.warning("%s (%s)", each.sentence, each.kind)

    def _append(self, line: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def _thin(self) -> None:
        """Replace the file by one with fewer old lines; a crash leaves one of the two."""
        with self._path.open(encoding="utf-8") as file:
            lines = thin_lines(file, now_s=time.time())
        new = self._path.with_suffix(".new")
        new.write_text("".join(lines), encoding="utf-8")
        os.replace(new, self._path)
