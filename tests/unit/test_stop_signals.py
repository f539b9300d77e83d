"""A signal ends a process in time, whatever its main thread does."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.command import Command

GRACE_S = 0.2
SHOW_CURSOR = "\x1b[?25h"
BEGIN = """
import ctypes, os, sys, threading, time
from tfps.stop_signals import end_on_signals
end_on_signals(
    grace_s=GRACE_S, before_exit=lambda status: os.write(1, f"last words {status}\\n".encode())
)
print("ready", flush=True)
"""
IN_ORDER = """
try:
    time.sleep(60)
except BaseException as error:
    print(repr(error), flush=True)
    sys.exit(3)
"""
IN_A_LOCK = """
lock = threading.Lock()
lock.acquire()
try:
    time.sleep(60)
finally:
    lock.acquire()
"""
# No signal brings it back, and no Python code of the main thread runs meanwhile.
IN_C = """
mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
lock(mutex)
lock(mutex)
"""


def _run(
    code: str, number: int, *, grace_s: float = GRACE_S, again: bool = False, ready: str = "ready"
) -> tuple[int, str, str]:
    """Run a program and send a signal; return its status, output and error output."""
    script = BEGIN.replace("GRACE_S", str(grace_s)) + code
    with Command([sys.executable, "-c", script], deadline_s=30) as command:
        command.wait_for(ready)
        command.send(number)
        if again:
            command.wait_for("stopping")
            command.send(signal.SIGTERM)
        return command.wait(), command.output, command.errors


@pytest.mark.quick("15-*")
@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGINT, "KeyboardInterrupt()"), (signal.SIGTERM, "SystemExit(143)")],
)
def test_what_ends_in_order_is_left_alone(number: signal.Signals, raised: str) -> None:
    status, output, errors = _run(IN_ORDER, number, grace_s=30)
    assert status == 3
    assert output == f"ready\n{raised}\n"
    assert errors == f"tfps: {number.name}: stopping (repeat to stop at once)\n"


@pytest.mark.quick("2-in a lock")
@pytest.mark.parametrize("code", [IN_A_LOCK, IN_C], ids=["in a lock", "in C"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_hangs_is_ended(code: str, number: signal.Signals) -> None:
    status, output, errors = _run(code, number)
    assert status == 128 + number
    assert output == f"ready\nlast words {status}\n"
    said = re.fullmatch(
        rf"tfps: {number.name}: stopping \(repeat to stop at once\)\n"
        rf"tfps: killed: still running 0\.2 s after {number.name}; see the stacks in (\S+)\n",
        errors,
    )
    assert said, errors
    stacks = Path(said[1])
    assert "most recent call first" in stacks.read_text()
    stacks.unlink()


@pytest.mark.rare
def test_a_signal_that_the_program_takes_over_is_its_own() -> None:
    code = """
import signal
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(2), os._exit(5)))
print("taken over", flush=True)
time.sleep(60)
"""
    status, output, errors = _run(code, signal.SIGTERM, ready="taken over")
    assert (status, output.count("last words"), errors) == (5, 0, "")


def test_a_second_signal_ends_at_once() -> None:
    code = IN_A_LOCK.replace("finally:", "finally:\n    print('stopping', flush=True)")
    status, output, errors = _run(code, signal.SIGINT, grace_s=30, again=True)
    assert status == 130
    assert output == "ready\nstopping\nlast words 130\n"
    assert errors == ("tfps: SIGINT: stopping (repeat to stop at once)\ntfps: stopped at once\n")


# The error output is a terminal, in whose last line a progress bar is drawn.
IN_A_BAR = """
import pty
controller, terminal = pty.openpty()
sys.stderr = os.fdopen(terminal, "w")
from tfps.terminal import open_line
open_line(True)
try:
    print("drawn", flush=True)
    time.sleep(60)
finally:
    if sys.argv[1:]:
        time.sleep(60)
    os.set_blocking(controller, False)
    print(repr(os.read(controller, 1000)))
"""


@pytest.mark.rare
def test_a_message_begins_on_a_line_of_its_own() -> None:
    status, output, _ = _run(IN_A_BAR, signal.SIGTERM, grace_s=30, ready="drawn")
    assert status == 143
    assert r"b'\r\ntfps: SIGTERM: stopping (repeat to stop at once)\r\n'" in output


@pytest.mark.rare
def test_an_end_by_force_shows_the_cursor() -> None:
    code = IN_A_BAR.replace("sys.argv[1:]", "True")
    code = code.replace("os.set_blocking", "pass; os.set_blocking")
    # The process that forces the end writes last: its words show what the terminal got.
    begin = "os.write(1, f"
    shows = (
        "[os.write(1, os.read(controller, 1000)) for _ in range(2)"
        " if __import__('select').select([controller], [], [], 0.5)[0]] and "
    )
    script = BEGIN.replace(begin, shows + begin)
    script = script.replace("GRACE_S", str(GRACE_S)) + code
    with Command([sys.executable, "-c", script], deadline_s=30) as command:
        command.wait_for("drawn")
        command.send(signal.SIGTERM)
        assert command.wait() == 143
        assert SHOW_CURSOR in command.output


# TensorFlow makes a Python exception of its own status, and a signal comes meanwhile.
REPLACED = """
from tfps.launch.exit import end_process
from tfps.launch.script import exit_status_of
def program():
    print("trains", flush=True)
    try:
        time.sleep(60)
    except SystemExit:
        raise RuntimeError("ORIGINAL OutOfRangeError REPLACED BY SystemExit: 143") from None
end_process(exit_status_of(program))
"""


def test_an_error_that_takes_the_place_of_the_signals_is_not_told() -> None:
    status, output, errors = _run(REPLACED, signal.SIGTERM, grace_s=30, ready="trains")
    assert (status, output) == (143, "ready\ntrains\n")
    assert errors == "tfps: SIGTERM: stopping (repeat to stop at once)\n"
