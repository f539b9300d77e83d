"""What tfps tells whoever runs a program: one look, and no message within another line."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.spinner import Spinner

SHOW_CURSOR = "\x1b[?25h"
ERASE_LINE = "\r\x1b[2K"
FRAMES_PER_S = 10  # of what turns while nothing else is written

_LEVELS = ((logging.ERROR, "error: "), (logging.WARNING, "warning: "))

_line_is_open = False
_shared_line: int | None = None
_spinner: Spinner | None = None


def open_line(is_open: bool) -> None:
    """Note that the terminal's last line is being redrawn, such as a progress bar, or has ended.

    Args:
        is_open: whether a message would stand in it.
    """
    global _line_is_open
    if _shared_line is not None and is_open != _line_is_open:
        os.pwrite(_shared_line, b"\1" if is_open else b"\0", 0)
    _line_is_open = is_open


def share_line(file_number: int | None) -> None:
    """Let several processes on one terminal know of each other's lines.

    Args:
        file_number: an open file of theirs; None: this process is alone from now on.
    """
    global _shared_line
    _shared_line = file_number


def fresh_line() -> str:
    """Return what a message has to begin with to stand on a line of its own on this terminal."""
    global _line_is_open
    if _shared_line is not None:
        _line_is_open = os.pread(_shared_line, 1, 0) == b"\1"
    begins = "\n" if _line_is_open else ERASE_LINE if _spinner is not None else ""
    open_line(False)
    return begins


def say(text: str) -> None:
    """Write ``tfps: text`` to the error output.

    Args:
        text: a message of tfps's own.
    """
    stream = sys.stderr
    if stream is not None:
        # What moves makes room by itself for what is written through Python.
        begins = fresh_line() if _spinner is None and stream.isatty() else ""
        stream.write(f"{begins}tfps: {text}\n")
        stream.flush()


def announce(text: str) -> None:
    """Say on a terminal what takes its time from now on; write nothing elsewhere.

    Args:
        text: for example ``connecting to 2 workers``.
    """
    if _spinner is not None:
        _spinner.update(text=f"tfps: {text}")
    elif sys.stderr is not None and sys.stderr.isatty():
        say(text)


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """Show on a terminal what goes on, in a line that moves and is gone afterwards.

    `announce` replaces its text meanwhile. For phases in which no code of a user's runs: one that
    asks for something, such as a debugger, would not be seen.

    Args:
        text: for example ``starting 2 workers``.
    """
    global _spinner
    if _spinner is not None or sys.stderr is None or not sys.stderr.isatty():
        announce(text)
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    _spinner = Spinner("dots", text=f"tfps: {text}")
    try:
        with Live(
            _spinner,
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=FRAMES_PER_S,
            redirect_stdout=sys.stdout.isatty(),
        ):
            yield
    finally:
        _spinner = None


class MessageHandler(logging.Handler):
    """Writes tfps's records as messages where nobody else takes them.

    As Python's own handler of last resort: it looks at each record anew, so that an application
    may configure logging before or after it imports tfps, and no record is written twice.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record unless some other handler gets it."""
        if _has_another_handler(logging.getLogger(record.name)):
            return
        try:
            say(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler: logging must not end a program
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the message after its level, where that is a warning or worse."""
        level = next((name for number, name in _LEVELS if record.levelno >= number), "")
        return level + super().format(record)


def show_own_records() -> None:
    """Let records of the logger ``tfps`` be messages; a second call changes nothing."""
    logger = logging.getLogger("tfps")
    if not any(isinstance(handler, MessageHandler) for handler in logger.handlers):
        logger.addHandler(MessageHandler())


@contextlib.contextmanager
def root_logger_as_it_was() -> Iterator[None]:
    """Keep absl from configuring Python's root logger, which it does for its first record.

    TensorFlow logs through it when it connects to a cluster. Every later record of the program
    would be written in absl's choice of a look, and TensorFlow's own twice.
    """
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    placeholder = logging.NullHandler()
    root.addHandler(placeholder)
    try:
        yield
    finally:
        root.removeHandler(placeholder)


def _has_another_handler(logger: logging.Logger) -> bool:
    current: logging.Logger | None = logger
    while current is not None:
        if any(
            not isinstance(handler, (MessageHandler, logging.NullHandler))
            for handler in current.handlers
        ):
            return True
        current = current.parent if current.propagate else None
    return False
