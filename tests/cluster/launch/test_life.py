"""The life of a local cluster in other people's programs: its start, its end, and its owner's."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness.command import Command, run_command
from tests.harness.leaks import assert_no_leaks
from tests.messages import raises
from tfps.errors import ConfigError, TaskFailed
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)

DEADLINE_S = 120


def test_counts_are_checked() -> None:
    with raises(ConfigError, "workers: received 0", received="ps: received -1"):
        LocalCluster(workers=0, ps=-1)


@pytest.mark.repeats
def test_a_task_that_ends_at_its_start_is_reported(tmp_path: Path) -> None:
    wrong = {"TFPS_CHIEF_TIMEOUT_S": "soon"}
    with assert_no_leaks(), pytest.raises(TaskFailed) as raised:
        LocalCluster(workers=1, ps=1, log_dir=tmp_path, environment=wrong)
    text = str(raised.value)
    assert "0 ended with status 1; its last lines:" in text
    assert "TFPS_CHIEF_TIMEOUT_S: received 'soon', expected a number" in text
    assert str(tmp_path) in text


SCRIPT = """
from tfps.launch import LocalCluster
import sys
with LocalCluster(workers=1, ps=1) as cluster:
    print("up", cluster.pid("worker", 0), cluster.pid("ps", 0), cluster.log_dir, flush=True)
    exec(sys.argv[1] if len(sys.argv) > 1 else "pass")
print("closed", flush=True)
"""


@pytest.mark.rare
def test_from_standard_input() -> None:
    # No main module that a child could import, as in a notebook.
    result = run_command([sys.executable, "-"], deadline_s=DEADLINE_S, input_text=SCRIPT)
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert second == "closed"
    assert not Path(first.split()[-1]).exists()  # temporary logs of a good run go


@pytest.mark.repeats
def test_tasks_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    arguments = [sys.executable, str(script), "import time; time.sleep(100)"]
    with Command(arguments, deadline_s=DEADLINE_S) as command:
        found = command.wait_for(r"up (\d+) (\d+)")
        tasks = [psutil.Process(int(number)) for number in found.groups()]
        if (
            use_fork_server := tasks[0].parent()
        ) is not None and use_fork_server.pid != command.process.pid:
            tasks.append(use_fork_server)
        command.send(signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL
        for task in tasks:
            task.wait(10)


@pytest.mark.rare
def test_a_cluster_that_nobody_closes_ends_with_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tfps.launch import LocalCluster\n"
        "cluster = LocalCluster(workers=1, ps=1)\nraise ValueError('wrong')\n"
    )
    result = run_command([sys.executable, script], deadline_s=DEADLINE_S)
    assert result.returncode == 1
    assert result.stderr.count("Traceback") == 1


LOST = """
import sys, time
from tfps.launch import LocalCluster
cluster = LocalCluster(workers=2, ps=1)
import tensorflow as tf
import tfps
strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_resolver)
kind = tfps if sys.argv[1] == "ours" else tf.distribute.coordinator
coordinator = kind.ClusterCoordinator(strategy)
with strategy.scope():
    variable = tf.Variable(0.0)
@tf.function
def step():
    variable.assign_add(1.0)
def count():
    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join()
count()
cluster.kill("worker", 1)
count()
handler = coordinator._cluster.failure_handler
ends_at = time.monotonic() + 30
def waits():  # for the lost worker; TensorFlow's holds its lock meanwhile
    return handler.lost_workers == {1} if kind is tfps else handler._cluster_update_lock.locked()
while not waits():
    assert time.monotonic() < ends_at
    time.sleep(0.05)
print("done", variable.numpy(), flush=True)
if sys.argv[1] == "end":
    from tfps.launch.exit import end_process
    end_process(3)
"""


@pytest.mark.rare
@pytest.mark.parametrize(("mode", "status"), [("ours", 0), ("end", 3)])
def test_a_process_that_lost_a_worker_ends(tmp_path: Path, mode: str, status: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOST)
    with Command([sys.executable, script, mode], deadline_s=DEADLINE_S) as command:
        command.wait_for("done")
        assert command.wait() == status
