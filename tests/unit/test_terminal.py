"""Messages of tfps: one look, on lines of their own, and records that reach each reader once."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tfps import terminal

LOGGER = logging.getLogger("tfps.recovery.guard")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def redirect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Terminal]]:
    """Called within a test, since pytest puts its own in place when that begins."""

    def to_terminal(*, configured: bool = False) -> Terminal:
        stream = Terminal()
        monkeypatch.setattr("sys.stderr", stream)
        if not configured:  # without pytest's handlers
            monkeypatch.setattr(logging.getLogger(), "handlers", [])
        return stream

    yield to_terminal
    terminal.open_line(False)


Redirect = Callable[..., Terminal]


def test_records_are_messages_with_their_level(redirect: Redirect) -> None:
    stream = redirect()
    LOGGER.error("ps %d is lost", 0)
    LOGGER.warning("worker %d does not respond", 1)
    LOGGER.info("a detail")
    assert stream.getvalue() == (
        "tfps: error: ps 0 is lost\ntfps: warning: worker 1 does not respond\n"
    )


@pytest.mark.parametrize("place", ["", "tfps", "tfps.recovery"])
def test_an_application_that_configures_logging_later_gets_each_record_once(
    redirect: Redirect, place: str
) -> None:
    stream = redirect()
    mine = io.StringIO()
    handler = logging.StreamHandler(mine)
    logging.getLogger(place).addHandler(handler)
    try:
        LOGGER.warning("once")
    finally:
        logging.getLogger(place).removeHandler(handler)
    assert (mine.getvalue(), stream.getvalue()) == ("once\n", "")
    LOGGER.warning("again")
    assert stream.getvalue() == "tfps: warning: again\n"


def test_pytest_gets_records(redirect: Redirect, caplog: pytest.LogCaptureFixture) -> None:
    stream = redirect(configured=True)
    LOGGER.warning("for caplog")
    assert caplog.messages == ["for caplog"]
    assert stream.getvalue() == ""


def test_no_message_stands_in_a_progress_line(redirect: Redirect) -> None:
    stream = redirect()
    stream.write("\r 50/149 ...")
    terminal.open_line(True)
    LOGGER.warning("first")
    terminal.write_message("second")
    assert stream.getvalue() == "\r 50/149 ...\ntfps: warning: first\ntfps: second\n"


def test_a_file_has_no_line_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    terminal.open_line(True)
    terminal.write_message("text")
    terminal.announce("what a file does not need")
    terminal.open_line(False)
    assert file.getvalue() == "tfps: text\n"


def test_what_goes_on_is_shown_while_it_does_and_gone_afterwards(
    redirect: Redirect, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = redirect()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", stream)
    with terminal.status("starting 2 workers"):
        print("a line of the program", file=sys.stderr)
        terminal.announce("connecting")
    text = stream.getvalue()
    assert "starting 2 workers" in text
    assert re.search("[⠀-⣿] tfps: connecting", text), "in the line that moves"
    before, _, after = text.partition("a line of the program\n")
    assert after
    assert before.endswith("\x1b[2K"), "the line that moves makes room"
    assert text.endswith("\x1b[2K"), "nothing stays"
    assert text.rindex(terminal.SHOW_CURSOR) > text.index("\x1b[?25l")
    terminal.announce("later")
    assert stream.getvalue().endswith("tfps: later\n")


def test_absl_does_not_configure_the_root_logger() -> None:
    code = """
import logging
from absl import logging as absl
from tfps.terminal import root_logger_as_it_was
with root_logger_as_it_was():
    absl.info("as TensorFlow does when it connects")
print(logging.getLogger().handlers)
logging.basicConfig()
with root_logger_as_it_was():
    assert len(logging.getLogger().handlers) == 1
logging.getLogger("tfps.x").warning("text")
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "[]\n"
    assert result.stderr == "WARNING:tfps.x:text\n"
