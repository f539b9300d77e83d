"""The tools of cluster tests notice what they are there for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.harness.command import Command, run_command
from tests.harness.leaks import assert_no_leaks
from tests.messages import raises


def test_a_process_left_behind_is_found() -> None:
    process = None
    with raises(AssertionError, "time.sleep"), assert_no_leaks(settle_s=0.1):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert process is not None
    process.kill()
    process.wait()


NAMED = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(15, b"fork server", 0, 0, 0)
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(61)"])
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the fork server has its name on Linux")
@pytest.mark.parametrize("child", [(), ("with a child",)])
def test_the_fork_server_stays_but_not_what_it_started(child: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", NAMED, *child]
    expected = raises(AssertionError, "61") if child else contextlib.nullcontext()
    process = None
    try:
        with expected, assert_no_leaks(settle_s=0.1):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
    finally:
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


TRACKED = """
from multiprocessing import resource_tracker
import psutil
from tests.harness.leaks import assert_no_leaks
with assert_no_leaks(settle_s=0.1):
    resource_tracker.ensure_running()
print(len(psutil.Process().children()))
"""


def test_what_multiprocessing_keeps_is_fine() -> None:
    result = run_command([sys.executable, "-c", TRACKED], deadline_s=60)
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


def test_a_thread_left_behind_is_found() -> None:
    stop = threading.Event()
    with raises(AssertionError, "forgotten"), assert_no_leaks(settle_s=0.1):
        threading.Thread(target=stop.wait, name="forgotten").start()
    stop.set()


def test_what_ends_soon_is_fine() -> None:
    with assert_no_leaks(settle_s=20):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"])
        threading.Timer(0.2, print).start()
    process.wait()


def test_a_missed_deadline_shows_the_output() -> None:
    code = "import time; print('so far', flush=True); time.sleep(60)"
    with raises(AssertionError, "its end", received="1 s", remedy="so far"):
        run_command([sys.executable, "-c", code], deadline_s=1)


def test_output_that_never_comes() -> None:
    with raises(AssertionError, "'more'", received="little"):
        with Command([sys.executable, "-c", "print('little')"], deadline_s=20) as command:
            command.wait_for("more")


def test_a_command_that_leaves_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.harness.command.REAP_TIMEOUT_S", 0.2)
    code = (
        "import subprocess, sys, time;"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "time.sleep(0.5)"
    )
    with raises(AssertionError, "processes", received="sleep(60)"):
        run_command([sys.executable, "-c", code], deadline_s=30)
