"""The chief's last message: the tasks that end on it, their status, and those that stay."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

import tfps
from tests.harness.command import Command
from tests.harness.leaks import assert_no_leaks
from tfps.cluster import ClusterSpec, announce_finished, lease_ports
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

DEADLINE_S = 120
SERVE = [sys.executable, "-m", "tfps", "serve"]
PLAIN_SERVER = """
import json, os, tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
tf.distribute.Server(config["cluster"], job_name=config["task"]["type"], task_index=0)
print("serves at", flush=True)
input()
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[LocalCluster]:
    """A worker and a server, which end with the job."""
    with assert_no_leaks(), LocalCluster(1, 1, log_dir=tmp_path / "logs") as cluster:
        yield cluster


def _statuses(tasks: LocalCluster) -> list[int]:
    ends_at = time.monotonic() + DEADLINE_S
    while True:
        found = [tasks.status(task_type, 0) for task_type in ("worker", "ps")]
        known = [status for status in found if status is not None]
        if len(known) == len(found):
            return known
        assert time.monotonic() < ends_at, found
        time.sleep(0.05)


def test_while_a_coordinator_is_connected(tasks: LocalCluster) -> None:
    strategy = tf.distribute.ParameterServerStrategy(tasks.spec.tf_resolver())
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(1.0)
    result = coordinator.schedule(tf.function(lambda: variable + 1.0))
    assert result.fetch() == 2.0
    assert announce_finished(tasks.spec, 0) == ["worker 0", "ps 0"]
    assert _statuses(tasks) == [0, 0]
    assert "the job finished" in tasks.logs["worker 0"].read_text()
    assert announce_finished(tasks.spec, 0) == []  # no task is left


@pytest.fixture
def spec() -> Iterator[ClusterSpec]:
    with lease_ports(3) as lease:
        lease.share_with_this_process()
        chief, worker, ps = (f"127.0.0.1:{port}" for port in lease.ports)
        yield ClusterSpec(jobs={"chief": (chief,), "worker": (worker,), "ps": (ps,)})


def _task(spec: ClusterSpec, task_type: str, *arguments: str) -> Command:
    environment = {
        "TF_CONFIG": json.dumps(spec.tf_config(task_type, 0)),
        "TF_GRPC_REUSE_PORT": "true",
        "TFPS_CHIEF_TIMEOUT_S": "100",
    }
    return Command(arguments or SERVE, deadline_s=DEADLINE_S, environment=environment)


def test_a_failed_job_and_a_server_that_is_not_ours(
    spec: ClusterSpec, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="tfps")
    plain = (sys.executable, "-c", PLAIN_SERVER)
    with _task(spec, "worker", *plain) as worker, _task(spec, "ps") as ps:
        worker.wait_for("serves at")
        ps.wait_for("serves at")
        assert announce_finished(spec, 3) == ["ps 0"]
        assert ps.wait() == 1
        assert "the chief's script failed" in ps.output
        assert worker.process.poll() is None
        assert "worker 0 at" in caplog.text
        assert "cannot tell" in caplog.text


CHIEF = """
import sys, tensorflow as tf
from tfps.cluster import ClusterSpec, announce_at_exit
spec = ClusterSpec.from_environment()
announce_at_exit(spec)
strategy = tf.distribute.ParameterServerStrategy(spec.tf_resolver())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    variable = tf.Variable(1.0)
print(coordinator.schedule(tf.function(lambda: variable + 1.0)).fetch(), flush=True)
exec(sys.argv[1])
"""


@pytest.mark.parametrize(("end", "status"), [("pass", 0), ("raise ValueError('wrong')", 1)])
def test_a_chief_started_as_a_plain_script(
    tasks: LocalCluster, tmp_path: Path, end: str, status: int
) -> None:
    script = tmp_path / "chief.py"
    script.write_text(CHIEF)
    with _task(tasks.spec, "chief", sys.executable, str(script), end) as chief:
        chief.wait()
        assert chief.output.startswith("2.0"), chief.describe()
        assert _statuses(tasks) == [status, status]
