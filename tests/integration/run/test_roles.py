"""`tfps run` with TF_CONFIG: one process per task, and the statuses with which they end."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.command import Command, run_command
from tests.integration.library_lines import RAW
from tests.integration.run.counting_script import counting_script
from tests.integration.terminal import run_in_terminal
from tfps.cluster import ClusterSpec, lease_ports

pytestmark = pytest.mark.timeout(180)

DEADLINE_S = 120
TFPS = [sys.executable, "-m", "tfps"]
ROLE = """
import json, os, sys
role = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
print("runs as", role, flush=True)
if role == "evaluator":
    sys.exit(0)
"""
# Without TensorFlow, whose import takes most of the chief's time.
WHEN_ALL_SERVE = """
from tfps.cluster import ClusterSpec, wait_for_tasks
wait_for_tasks(ClusterSpec.from_environment(), timeout_s=100)
print("all serve", flush=True)
exec(sys.argv[1])
"""


@pytest.fixture
def spec() -> Iterator[ClusterSpec]:
    with lease_ports(3) as lease:
        chief, worker, ps = (f"127.0.0.1:{port}" for port in lease.ports)
        yield ClusterSpec(jobs={"chief": (chief,), "worker": (worker,), "ps": (ps,)})


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(counting_script(steps=10, first=ROLE, last="exec(sys.argv[1])"))
    return path


def _task(
    spec: ClusterSpec, task: tuple[str, int], *arguments: object, timeout_s: float = 60
) -> Command:
    environment = {
        "TF_CONFIG": json.dumps(spec.tf_config(*task) | {"environment": "cloud"}),
        "TF_GRPC_REUSE_PORT": "true",
        "TFPS_CHIEF_TIMEOUT_S": str(timeout_s),
    }
    command = [*TFPS, "run", *map(str, arguments)]
    return Command(command, deadline_s=DEADLINE_S, environment=environment)


@pytest.mark.quick("sys.exit*")
@pytest.mark.parametrize(("end", "chief_status", "status"), [("pass", 0, 0), ("sys.exit(5)", 5, 1)])
def test_workers_and_servers_end_as_the_chief_did(
    spec: ClusterSpec, script: Path, end: str, chief_status: int, status: int
) -> None:
    said = "counted 10.0"
    if end != "pass":
        said = "all serve"
        script.write_text(ROLE + WHEN_ALL_SERVE)
    with contextlib.ExitStack() as stack:
        # The chief comes first: it waits for the others.
        chief = stack.enter_context(_task(spec, ("chief", 0), script, end))
        others = [
            stack.enter_context(_task(spec, task, script, end))
            for task in (("worker", 0), ("ps", 0))
        ]
        for other in others:
            other.wait_for("serves at")
        # One more task, whose end is not the job's: the chief finds all others there.
        with _task(spec.for_task("evaluator", 0), ("evaluator", 0), script, end) as evaluator:
            assert evaluator.wait() == 0
            assert evaluator.output == "runs as evaluator\n"
        assert chief.wait() == chief_status, chief.describe()
        assert "runs as chief" in chief.output
        assert said in chief.output
        for other in others:
            assert other.wait() == status, other.describe()
            assert "runs as" not in other.output


@pytest.mark.rare
def test_a_chief_that_comes_back_and_goes(spec: ClusterSpec, script: Path) -> None:
    def listen() -> socket.socket:
        # All that a task looks for; a real one takes its time to start on a busy machine.
        chief = socket.socket()
        chief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        host, _, port = spec.address("chief", 0).partition(":")
        chief.bind((host, int(port)))
        chief.listen(100)
        return chief

    with contextlib.ExitStack() as stack:
        chief = listen()
        others = [
            stack.enter_context(_task(spec, task, script, timeout_s=3))
            for task in (("worker", 0), ("ps", 0))
        ]
        for other in others:
            other.wait_for("serves at")
        chief.close()
        time.sleep(1)
        chief = listen()
        time.sleep(4)
        assert [other.process.poll() for other in others] == [None, None]
        chief.close()
        for other in others:
            assert other.wait() == 75, other.describe()
            assert "did not respond for 3 s (TFPS_CHIEF_TIMEOUT_S)" in other.output


@pytest.mark.repeats
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_end_a_server(
    spec: ClusterSpec, script: Path, number: signal.Signals, status: int
) -> None:
    with _task(spec, ("ps", 0), script) as server:
        server.wait_for("serves at")
        server.send(number)
        assert server.wait() == status
        assert f"tfps: {number.name}: ps 0 stops at once\n" in server.errors
        assert "Traceback" not in server.errors


@pytest.mark.repeats
@pytest.mark.parametrize("task_type", ["chief", "evaluator"])
def test_sigterm_ends_a_script_with_a_word(
    spec: ClusterSpec, tmp_path: Path, task_type: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    with _task(spec, (task_type, 0), script) as task:
        task.wait_for("ready")
        task.send(signal.SIGTERM)
        assert task.wait() == 128 + signal.SIGTERM
        assert "tfps: SIGTERM: stopping" in task.errors
        assert "Traceback" not in task.errors


def test_every_mistake_in_tf_config_is_named(script: Path) -> None:
    config = {
        "cluster": {
            "worker": ["a:1", "a:1"],
            "evaluator": ["b:1"],
            "ps": ["::1:2222", "c:http"],
            "gpu": ["d:1"],
        },
        "task": {"type": "worker", "index": 2},
    }
    result = run_command(
        [*TFPS, "run", script], deadline_s=60, environment={"TF_CONFIG": json.dumps(config)}
    )
    assert result.returncode == 1
    for key in (
        "cluster.chief:",
        "cluster.evaluator:",
        "cluster.ps[0]:",
        "cluster.ps[1]:",
        "cluster.gpu:",
        "cluster.worker[1]:",
        "task.index:",
    ):
        assert f"  - {key}" in result.stderr
    assert "TF_CONFIG has 7 mistakes:" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.repeats
@pytest.mark.parametrize("command", [["serve"], ["run", "train.py"], ["train"]], ids=lambda c: c[0])
def test_no_task_shows_the_lines_of_libraries_in_a_terminal(
    spec: ClusterSpec, script: Path, command: list[str]
) -> None:
    environment = {
        "TF_CONFIG": json.dumps(spec.tf_config("ps", 0)),
        "TF_GRPC_REUSE_PORT": "true",
        "TMPDIR": str(script.parent),
    }
    status, text = run_in_terminal(
        [*TFPS, *command],
        deadline_s=DEADLINE_S,
        typed={f"serves at {spec.address('ps', 0)}\r\n": b"\x03"},
        environment=environment,
        folder=script.parent,
    )
    assert status == 130, text
    assert len(text.splitlines()) == 3, text
    first, second, last = text.splitlines()
    assert re.fullmatch(r"tfps: ps 0: logs \(kept on failure\) in \S+", first)
    assert re.fullmatch(r"tfps: ps 0 serves at 127\.0\.0\.1:\d+", second)
    assert last.endswith("tfps: SIGINT: ps 0 stops at once")
    logs = Path(first.rpartition(" ")[2])
    assert RAW.search((logs / "ps-0.log").read_text()), "they are in the log"
