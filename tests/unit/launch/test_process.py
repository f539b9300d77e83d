"""Child processes: their status, their logs, and that they never outlive their parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.harness.command import Command
from tests.harness.leaks import assert_no_leaks
from tfps.launch.process import TaskProcess, describe_status, last_lines, start_program


def _task(code: str, log_path: Path) -> TaskProcess:
    return start_program(
        name="worker 0",
        command=[sys.executable, "-c", code],
        environment=dict(os.environ),
        log_path=log_path,
    )


def test_status_and_last_lines(tmp_path: Path) -> None:
    code = "import sys; [print(i) for i in range(50)]; print('end', file=sys.stderr); sys.exit(3)"
    task = _task(code, tmp_path / "log")
    assert task.wait(30) == 3
    assert task.status() == 3
    assert sorted(task.last_lines(3)) == ["48", "49", "end"] or "end" in task.last_lines()
    assert len(task.last_lines()) == 20


def test_last_lines_are_not_those_of_libraries(tmp_path: Path) -> None:
    log = tmp_path / "log"
    noise = "E0000 00:00:1795241506.304509    5726 a.cc:1] noise\n  goes on\n"
    log.write_text("tfps: ps 0 serves\nTraceback\n" + 30 * noise)
    assert last_lines(log) == ["tfps: ps 0 serves", "Traceback"]
    assert last_lines(log, 1, with_noise=True) == ["  goes on"]


def test_kill_takes_what_the_task_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with assert_no_leaks():
        task = _task(code, tmp_path / "log")
        while not task.last_lines():
            time.sleep(0.02)
        grandchild = psutil.Process(int(task.last_lines()[0]))
        assert task.kill() == -signal.SIGKILL
        grandchild.wait(10)
        assert task.kill() == -signal.SIGKILL  # again: nothing happens


def test_a_task_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    # Linux's signal at the parent's end is sent at the end of the thread that forked.
    code = (
        "import ctypes, time; ctypes.CDLL(None).prctl(1, 9); print('up', flush=True);time.sleep(60)"
    )
    started: list[TaskProcess] = []
    thread = threading.Thread(target=lambda: started.append(_task(code, tmp_path / "log")))
    thread.start()
    thread.join()
    [task] = started
    while not task.last_lines():
        time.sleep(0.02)
    assert task.wait(0.5) is None
    task.kill()


PARENT = """
import os, subprocess, sys, time
from pathlib import Path
from tfps.launch.process import start_program
code = ("from tfps.launch.parent import end_with_parent; import os, time;"
        "assert end_with_parent(); print(os.getpid(), flush=True); time.sleep(60)")
task = start_program(name="worker 0", command=[sys.executable, "-c", code],
                   environment={**os.environ, "TFPS_PARENT_PID": str(os.getpid())},
                   log_path=Path(sys.argv[1]))
while not task.last_lines():
    time.sleep(0.02)
print("child", task.last_lines()[0], flush=True)
time.sleep(60)
"""


@pytest.mark.quick("9")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_task_ends_with_its_parent(tmp_path: Path, number: int) -> None:
    arguments = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with Command(arguments, deadline_s=40) as command:
        child = psutil.Process(int(command.wait_for(r"child (\d+)")[1]))
        command.send(number)
        assert command.wait() == -number
        child.wait(10)


def test_a_task_that_starts_after_its_parent_ended_ends(tmp_path: Path) -> None:
    code = "from tfps.launch.parent import end_with_parent; end_with_parent(); print('lives')"
    environment = {"TFPS_PARENT_PID": "1" if os.getpid() != 1 else "2"}
    with Command([sys.executable, "-c", code], deadline_s=30, environment=environment) as command:
        assert command.wait() == -signal.SIGKILL
        assert command.output == ""


def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_program(name="x", command=["/no/such"], environment={}, log_path=tmp_path / "log")


def test_descriptions() -> None:
    assert describe_status(0) == "ended with status 0"
    assert describe_status(-15) == "ended by SIGTERM"
    assert describe_status(-63) == "ended by signal 63"
    assert last_lines(Path("no such file")) == []
