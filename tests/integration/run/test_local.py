"""`tfps run` without TF_CONFIG: a whole cluster and a script on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.command import Command, run_command
from tests.integration.library_lines import RAW
from tests.integration.run.counting_script import counting_script
from tests.integration.terminal import run_in_terminal

pytestmark = pytest.mark.timeout(180)

DEADLINE_S = 120
TFPS = [sys.executable, "-m", "tfps"]
ALONE = {"TF_CONFIG": None}

# A chief without TensorFlow, where only processes matter: its import costs most of a short run.
WHEN_ALL_SERVE = """
import time
from tfps.cluster import ClusterSpec, wait_for_tasks
wait_for_tasks(ClusterSpec.from_environment(), timeout_s=100)
print("all serve", flush=True)
"""

END = """
print(sys.argv[1:], __name__, flush=True)
print("to the error output", file=sys.stderr)
exec(neighbour.END)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("END = 'pass'")
    path = tmp_path / "train.py"
    path.write_text(counting_script(steps=10, first="import sys, time, neighbour", last=END))
    return path


def _ends_with(script: Path, code: str) -> None:
    (script.parent / "neighbour.py").write_text(f"END = {code!r}")


@pytest.mark.repeats
def test_a_good_script(script: Path) -> None:
    logs = script.parent / "logs"
    result = run_command(
        [*TFPS, "run", "--workers", "2", "--ps", "1", "--log-dir", logs, script, "--rate", "0.1"],
        deadline_s=DEADLINE_S,
        environment=ALONE,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[chief] counted 10.0\n[chief] ['--rate', '0.1'] __main__\n"
    lines = result.stderr.splitlines()
    assert lines[0] == f"tfps: starting 2 workers and 1 parameter server; logs in {logs}"
    assert lines.count("[chief] to the error output") == 1
    steps = [line for line in lines if line.endswith("a step on a worker")]
    assert len(steps) == 10
    assert set(steps) <= {f"[worker {index}] a step on a worker" for index in (0, 1)}
    assert len(lines) == 12, result.stderr
    assert not RAW.search(result.stdout + result.stderr.replace(str(logs), ""))
    for name in ("worker-0", "worker-1", "ps-0", "chief-0"):
        assert RAW.search((logs / f"{name}.log").read_text()), "the raw lines are in the log"


def _temporary(folder: Path) -> dict[str, str | None]:
    """Return an environment with a folder for temporary files, which is made."""
    (folder / "temporary").mkdir()
    # TensorFlow imports code that it generates there, whose bytecode would stay.
    bytecode = {"PYTHONDONTWRITEBYTECODE": "1"}
    return {**ALONE, **bytecode, "TMPDIR": str(folder / "temporary")}


@pytest.mark.slow
def test_a_failing_script(script: Path) -> None:
    script.write_text(f"{WHEN_ALL_SERVE}raise ValueError('that is wrong')")
    result = run_command(
        [*TFPS, "run", "--workers", "1", str(script)],
        deadline_s=DEADLINE_S,
        environment=_temporary(script.parent),
    )
    assert result.returncode == 1
    assert result.stderr.count("Traceback (most recent call last)") == 1
    assert result.stderr.count("ValueError: that is wrong") == 1
    assert "run_script" not in result.stderr, "the traceback begins in the script"
    said = re.search(r"^tfps: .*train.py ended with status 1; logs in (.*)$", result.stderr, re.M)
    assert said, result.stderr
    assert [*(script.parent / "temporary").iterdir()] == [Path(said[1])], "these logs stay"
    assert (Path(said[1]) / "worker-0.log").is_file()
    assert not RAW.search(result.stderr.replace(str(script.parent), ""))


@pytest.mark.repeats
def test_the_status_is_the_scripts(script: Path) -> None:
    script.write_text("import sys; sys.exit(7)")
    result = run_command(
        [*TFPS, "run", "--workers", "1", str(script)], deadline_s=DEADLINE_S, environment=ALONE
    )
    assert result.returncode == 7


@pytest.mark.repeats
def test_temporary_logs_go_after_a_success(script: Path) -> None:
    script.write_text("")
    result = run_command(
        [*TFPS, "run", "--workers", "1", str(script)],
        deadline_s=DEADLINE_S,
        environment=_temporary(script.parent),
    )
    assert result.returncode == 0
    assert re.fullmatch(r"tfps: starting .*; logs \(kept on failure\) in \S+\n", result.stderr)
    assert [*(script.parent / "temporary").iterdir()] == []


@pytest.mark.rare
def test_a_script_that_crashes(script: Path) -> None:
    script.write_text("import os; os.write(2, b'last words'); os.abort()")
    result = run_command(
        [*TFPS, "run", "--workers", "1", str(script)], deadline_s=DEADLINE_S, environment=ALONE
    )
    assert result.returncode == 128 + signal.SIGABRT
    assert "[chief] last words" in result.stderr
    assert "train.py ended by SIGABRT; logs in" in result.stderr


# A quicker one is Ctrl-C in a terminal, below.
@pytest.mark.repeats
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything(script: Path, number: signal.Signals) -> None:
    _ends_with(script, "time.sleep(100)")
    arguments = [*TFPS, "run", "--workers", "1", str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("counted")
        tasks = command.children()
        assert len(tasks) >= 3
        command.send(number)
        assert command.wait() == 128 + number
        for task in tasks:
            task.wait(5)
        assert f"tfps: {number.name}: stopping" in command.errors
        assert "Traceback" not in command.errors


@pytest.mark.repeats
def test_a_script_may_end_in_order_after_a_signal(script: Path) -> None:
    code = (
        "import signal\n"
        "def stop(*_): print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\ntime.sleep(100)"
    )
    script.write_text("import sys, time\n" + code)
    arguments = [*TFPS, "run", "--workers", "1", str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("ready")
        command.send(signal.SIGTERM)
        assert command.wait() == 0
        assert "[chief] saved" in command.output


@pytest.mark.rare
def test_a_second_signal_ends_a_script_that_does_not_listen(script: Path) -> None:
    code = "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    script.write_text(code + "time.sleep(100)")
    arguments = [*TFPS, "run", "--workers", "1", str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("ready")
        command.send(signal.SIGINT)
        command.wait_for("stopping")
        command.send(signal.SIGINT)
        assert command.wait() == 128 + signal.SIGINT


# A quicker one is tests/unit/launch/test_process.py, whose task ends with its parent.
@pytest.mark.repeats
def test_everything_ends_when_the_command_is_killed(script: Path) -> None:
    script.write_text(f"{WHEN_ALL_SERVE}time.sleep(100)")
    arguments = [*TFPS, "run", "--workers", "1", str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("all serve")
        tasks = command.children()
        assert {"worker 0", "ps 0"} <= {task.name() for task in tasks}
        command.send(signal.SIGKILL)
        command.wait()
        for task in tasks:
            task.wait(10)


# Steps on all workers until a file exists.
ON_AND_ON = """
import os
while not os.path.exists(os.path.join(os.path.dirname(__file__), "enough")):
    for _ in range(10):
        coordinator.schedule(step)
    coordinator.join()
"""


def _kill(command: Command, *names: str) -> None:
    for task in command.children():
        if task.name() in names:
            task.send_signal(signal.SIGKILL)


@pytest.mark.repeats
def test_workers_that_die_are_started_again_and_work(script: Path) -> None:
    _ends_with(script, ON_AND_ON)
    logs = script.parent / "logs"
    arguments = [*TFPS, "run", "--workers", "2", "--log-dir", str(logs), str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("counted")
        _kill(command, "worker 0", "worker 1")
        for name in ("worker 0", "worker 1"):
            command.wait_for(
                rf"tfps: {name} ended by SIGKILL and is started again in 250 ms "
                rf"\(restart 1 of 3\); its last lines:\n(  \| .*\n)+Its log: .*{name[-1]}.log\n"
            )
        for name in ("worker 0", "worker 1"):
            command.wait_for(rf"(?s)tfps: {name} is back after .*\[{name}\] a step on a worker")
        (script.parent / "enough").touch()
        assert command.wait() == 0
        said = command.errors
    assert re.search(
        r"^tfps: 2 restarts: worker [01] \(SIGKILL\), worker [01] \(SIGKILL\)$", said, re.MULTILINE
    )
    records = [json.loads(line) for line in (logs / "events.jsonl").read_text().splitlines()]
    assert {record["version"] for record in records} == {1}
    events = [(r["event"], r.get("task"), r.get("status"), r.get("restarts")) for r in records]
    assert events[0] == ("job_started", None, None, None)
    assert {*events[1:4]} == {
        ("task_started", name, None, None) for name in ("worker 0", "worker 1", "ps 0")
    }
    for name in ("worker 0", "worker 1"):
        died, restarted = ("task_died", name, -9, 1), ("task_restarted", name, None, 1)
        assert events[4:].index(died) < events[4:].index(restarted)
    assert events[-1] == ("job_ended", None, 0, None)
    assert len(events) == 9


# Quicker ones: unit/recovery/test_restart_policy.py has the reasons that end a job, and
# cluster/recovery/test_restarts.py a job that ends so.
@pytest.mark.repeats
def test_a_job_goes_on_with_the_rest_and_ends_without_any(script: Path) -> None:
    _ends_with(script, ON_AND_ON)
    arguments = [*TFPS, "run", "--workers", "2", "--restarts", "0", str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("counted")
        _kill(command, "worker 1")
        command.wait_for(
            "tfps: worker 1 ended by SIGKILL and is not started again: the budget is 0; its last"
        )
        command.wait_for(r"(?s)worker 1 ended by SIGKILL.*\[worker 0\] a step on a worker")
        _kill(command, "worker 0")
        assert command.wait() == 1
        said = command.errors
    assert (
        "tfps: the job cannot continue: no worker is left: worker 0, worker 1 died, and the budget "
        "of restarts is 0\n"
    ) in said


@pytest.mark.repeats
def test_a_job_ends_when_the_budget_is_spent(script: Path) -> None:
    _ends_with(script, ON_AND_ON)
    arguments = [*TFPS, "run", "--workers", "1", "--restarts", "1", str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("counted")
        _kill(command, "worker 0")
        command.wait_for("worker 0 is back")
        _kill(command, "worker 0")
        assert command.wait() == 1
        said = command.errors
    assert "worker 0 ended by SIGKILL and is not started again after 1 restart" in said
    assert "no worker is left: worker 0 died again after its budget of 1 restart" in said


@pytest.mark.repeats
def test_a_lost_server_is_told_and_ends_the_script(script: Path) -> None:
    _ends_with(script, ON_AND_ON)
    arguments = [*TFPS, "run", "--workers", "1", str(script)]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("counted")
        _kill(command, "ps 0")
        assert command.wait() == 1
        said = command.errors
    assert "tfps: ps 0 ended by SIGKILL; its last lines:" in said
    assert (
        "tfps: the job cannot continue: what ps 0 held is lost with it. Start the job again from "
        "its last checkpoint\n"
    ) in said


@pytest.mark.repeats
def test_more_workers_than_there_are_cannot_be_left(script: Path) -> None:
    result = run_command(
        [*TFPS, "run", "--workers", "2", "--min-workers", "3", str(script)],
        deadline_s=DEADLINE_S,
        environment=ALONE,
    )
    assert result.returncode == 1
    assert result.stderr == (
        "Error: tfps.FaultTolerance: min_workers: received 3, expected at most 2, the number of "
        "workers of the cluster\n"
    )


@pytest.mark.rare
def test_a_task_that_does_not_start(script: Path) -> None:
    result = run_command(
        [*TFPS, "run", str(script)],
        deadline_s=DEADLINE_S,
        # Read by the tasks only: a module that they need does not load.
        environment={**ALONE, "TF_GRPC_REUSE_PORT": "true", "PYTHONPATH": _broken(script.parent)},
    )
    assert result.returncode == 1
    assert "Error: fork server ended with status 1; its last lines:" in result.stderr
    assert "this module is broken" in result.stderr


def _broken(folder: Path) -> str:
    """Return a PYTHONPATH with a module that the command imports, and its tasks cannot."""
    (folder / "broken").mkdir()
    (folder / "broken" / "portpicker.py").write_text(
        "import sys\nif 'tfps.launch.fork_server_main' in sys.orig_argv:\n"
        "    raise ImportError('this module is broken')\n"
        "def pick_unused_port():\n    import socket\n"
        "    with socket.socket() as s:\n        s.bind(('', 0)); return s.getsockname()[1]\n"
    )
    return os.pathsep.join([str(folder / "broken"), os.environ.get("PYTHONPATH", "")])


BAR = """
from tfps.training.report.progress import ClusterProgbar as Bar
class Pace:
    describe_pace = lambda self: '1/1 workers'
    describe_slow_worker = lambda self: ''
    step_rate = lambda self, kind, since_s: None
bar = Bar(Pace(), target=9)
bar.update(3)
time.sleep(100)
"""


@pytest.mark.repeats
def test_a_terminal_belongs_to_the_script_and_ctrl_c_is_one_line(script: Path) -> None:
    # One write each: without a buffer print() writes piece by piece, and a worker's line may come
    # between two of them.
    _ends_with(
        script,
        "write = lambda text: (sys.stdout.write(text + '\\n'), sys.stdout.flush());"
        "write(f'{sys.stdout.isatty()} {sys.stderr.isatty()} {sys.stdin.isatty()}');"
        "write('10%\\r50%\\r100%'); write('name ' + input('name? '))" + BAR,
    )
    logs = str(script.parent / "logs")
    arguments = [*TFPS, "run", "--workers", "1", "--log-dir", logs, str(script)]
    status, text = run_in_terminal(
        arguments,
        deadline_s=DEADLINE_S,
        typed={"name? ": b"me\n", "1/1 workers": b"\x03"},
        environment=ALONE,
    )
    assert status == 130, text
    assert "True True True\r\n" in text, text
    assert "10%\r50%\r100%\r\n" in text, text
    assert "name me\r\n" in text, text
    assert "[chief]" not in text
    assert "[worker 0] a step on a worker" in text
    assert not RAW.search(text.replace(str(script.parent), ""))
    _, _, after = text.rpartition("1/1 workers")
    # A line of the worker may come before Ctrl-C's message, and leaves a blank one there when it
    # comes between the terminal's ^C and the signal. The last sequence shows the cursor again.
    lines = [line for line in after.split("\r\n") if line]
    assert [line for line in lines if line != "[worker 0] a step on a worker"] == [
        "^C",
        f"tfps: SIGINT: stopping (repeat to stop at once); logs in {logs}",
        "\x1b[?25h",
    ]
