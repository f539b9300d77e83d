"""The messages of tfps on a terminal: one style, and each on a line of its own."""

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
FRAMES_PER_S = 10  # of the spinner

_LEVELS = ((logging.ERROR, "error: "), (logging.WARNING, "warning: "))

_line_is_open = False
_shared_line: int | None = None
_spinner: Spinner | None = None


def open_line(is_open: bool) -> None:
    """Set whether the terminal's last line is still being drawn, such as a progress bar.

    Args:
        is_open: whether a message would be written into that line.
    """
    global _line_is_open
    if _shared_line is not None and is_open != _line_is_open:
        os.pwrite(_shared_line, b"\1" if is_open else b"\0", 0)
    _line_is_open = is_open


def share_line(file_number: int | None) -> None:
    """Make this process share the state of the last line with others on its terminal.

    Each of these processes calls it.

    Args:
        file_number: an open file that they share; None: stop sharing.
    """
    global _shared_line
    _shared_line = file_number


def fresh_line() -> str:
    """Return the characters that put a message on a line of its own on this terminal."""
    global _line_is_open
    if _shared_line is not None:
        _line_is_open = os.pread(_shared_line, 1, 0) == b"\1"
    begins = "\n" if _line_is_open else ERASE_LINE if _spinner is not None else ""
    open_line(False)
    return begins


def write_message(text: str) -> None:
    """Write ``tfps: text`` to the error output.

    Args:
        text: a message of tfps's own.
    """
    stream = sys.stderr
    if stream is not None:
        # A spinner makes room by itself for lines that Python writes.
        begins = fresh_line() if _spinner is None and stream.isatty() else ""
        stream.write(f"{begins}tfps: {text}\n")
        stream.flush()


def announce(text: str) -> None:
    """Write what is about to take time; write nothing if the output is no terminal.

    Args:
        text: for example ``connecting to 2 workers``.
    """
    if _spinner is not None:
        _spinner.update(text=f"tfps: {text}")
    elif sys.stderr is not None and sys.stderr.isatty():
        write_message(text)


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """Show a spinner with a text on a terminal, until the context ends.

    `announce` replaces its text meanwhile. Use it only for phases without user code, whose prompts,
    such as a debugger's, would not be visible.

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
    """Writes tfps's log records as messages if no other handler gets them.

    It works like Python's own handler of last resort: it decides for each record, so that an
    application may configure logging before or after it imports tfps, and no record is written
    twice.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record unless another handler gets it."""
        if _has_another_handler(logging.getLogger(record.name)):
            return
        try:
            write_message(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler: logging must not end a program
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the message, after its level if that is a warning or worse."""
        level = next((name for number, name in _LEVELS if record.levelno >= number), "")
        return level + super().format(record)


def show_own_records() -> None:
    """Write records of the logger ``tfps`` as messages; a second call changes nothing."""
    logger = logging.getLogger("tfps")
    if not any(isinstance(handler, MessageHandler) for handler in logger.handlers):
        logger.addHandler(MessageHandler())


@contextlib.contextmanager
def root_logger_as_it_was() -> Iterator[None]:
    """Keep absl from configuring Python's root logger, which it does for its first record.

    TensorFlow logs through absl when it connects to a cluster. Every later record of the program
    would be written in absl's format, and TensorFlow's own twice.
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
