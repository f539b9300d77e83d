"""The lines that a user reads when a script ends with an error."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tfps.bridge.keras_patches import PACKAGE_FOLDER

# The marker of the one line that an error is about; a comment, so that the traceback shows it.
MISTAKE = "# the mistake"
# Where it was called, two lines of Keras or TensorFlow, the reason, the line of the mistake.
MOST_LINES = 30


@dataclass
class PrintedError:
    """An error as Python prints it."""

    error: BaseException | None = None
    text: str = ""


@contextlib.contextmanager
def reading(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture, *, shows_line: bool = True
) -> Iterator[PrintedError]:
    """Expect an error that is short, points at the line of the mistake once, and is not logged.

    Args:
        kind: the type of the error, which is the user's own or TensorFlow's.
        caplog: what was logged.
        shows_line: whether a line of the user's own is to blame.
    """
    read = PrintedError()
    caplog.clear()
    try:
        yield read
    except kind as error:
        read.error = error
        read.text = "".join(traceback.format_exception(error))
    else:
        pytest.fail(f"expected {kind.__name__}")
    assert read.text.count("Traceback (most recent call last)") == 1, read.text
    assert read.text.count(MISTAKE) == int(shows_line), read.text
    assert len(read.text.splitlines()) <= MOST_LINES, read.text
    assert read.text.count(PACKAGE_FOLDER) <= 1, (
        read.text
    )  # only where we raise the error ourselves
    logged = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert not logged, [record.getMessage() for record in logged]
