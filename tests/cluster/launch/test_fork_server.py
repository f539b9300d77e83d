"""Tasks that are forks of one process behave like programs of their own."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import tensorflow as tf

import tfps
from tests.harness.command import Command
from tests.harness.leaks import assert_no_leaks
from tests.messages import raises
from tfps.cluster import lease_ports
from tfps.errors import TaskFailed
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.rare, pytest.mark.timeout(120)]

# Read at an import, so that the tasks of these tests have a fork server of their own.
OWN_SERVER = {"TF_OF_TFPS_TESTS": "1"}


def _incarnations(cluster: LocalCluster) -> set[int]:
    """The random number of every task, by which TensorFlow notices that it was started again."""
    found = set()
    for task_type, index, address in cluster.spec.tasks("worker", "ps"):
        config = tf.compat.v1.ConfigProto(device_filters=[f"/job:{task_type}/task:{index}"])
        with tf.compat.v1.Session(f"grpc://{address}", graph=tf.Graph(), config=config) as session:
            found |= {device.incarnation for device in session.list_devices()}
    return found


def test_every_start_is_another_incarnation(cluster: Callable[..., LocalCluster]) -> None:
    tasks = cluster(workers=2, ps=1)
    first = _incarnations(tasks)
    assert len(first) == 3
    tasks.restart("worker", 1)
    assert len(_incarnations(tasks) - first) == 1


def test_every_task_leads_a_group_and_has_its_name(cluster: Callable[..., LocalCluster]) -> None:
    tasks = cluster(workers=2, ps=1)
    for task_type, index, _ in tasks.spec.tasks("worker", "ps"):
        process = psutil.Process(tasks.pid(task_type, index))
        assert os.getpgid(process.pid) == process.pid
        assert Path(f"/proc/{process.pid}/comm").read_text().strip() == f"{task_type} {index}"


def test_tasks_have_the_variables_that_they_were_given(tmp_path: Path) -> None:
    with lease_ports(1) as lease:
        port = lease.ports[0]
    environment = {"TFPS_DATA_PORT": str(port), "TFPS_JOB_SECRET": "x"}
    with LocalCluster(workers=1, ps=1, log_dir=tmp_path, environment=environment) as cluster:
        listening = {
            connection.laddr.port
            for connection in psutil.Process(cluster.pid("ps", 0)).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert port in listening
        worker = psutil.Process(cluster.pid("worker", 0))
        assert worker.cwd() == os.getcwd()


def test_a_cluster_that_ends_before_its_tasks_begin(tmp_path: Path) -> None:
    with assert_no_leaks():
        cluster = LocalCluster(1, 1, log_dir=tmp_path, environment=OWN_SERVER, wait=False)
        cluster.close()
    assert cluster.status("worker", 0) == -signal.SIGKILL
    assert (tmp_path / "worker-0.log").read_text() == ""


def test_the_next_cluster_starts_from_the_same_server(tmp_path: Path) -> None:
    """Also once this process has connected to the first one."""
    servers = []
    for number in range(2):
        folder = tmp_path / str(number)
        with LocalCluster(1, 1, log_dir=folder, environment=OWN_SERVER) as cluster:
            servers.append(psutil.Process(cluster.pid("worker", 0)).ppid())
            tfps.ParameterServerStrategy(cluster.cluster_resolver).close()
        # Written by TensorFlow, which reads it when it is imported.
        assert os.environ.get("TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE") == "False"
        assert psutil.Process(servers[-1]).children() == []
    assert servers[0] == servers[1]


def test_tasks_end_with_their_server_which_is_used_no_more(tmp_path: Path) -> None:
    with assert_no_leaks():
        with LocalCluster(1, 1, log_dir=tmp_path / "0", environment=OWN_SERVER) as cluster:
            server = psutil.Process(cluster.pid("worker", 0)).parent()
            assert server is not None
            server.kill()
            while len(cluster.failures()) < 3:
                time.sleep(0.02)
            said = [str(failure).splitlines()[0] for failure in cluster.failures()]
        assert said == [
            f"{name} ended by SIGKILL; its last lines:"
            for name in ("fork server", "worker 0", "ps 0")
        ]
        with LocalCluster(1, 1, log_dir=tmp_path / "1", environment=OWN_SERVER) as cluster:
            assert psutil.Process(cluster.pid("worker", 0)).ppid() != server.pid


SCRIPT = """
import sys, time, tfps
cluster = tfps.LocalCluster(1, 1)
print("task", cluster.pid("worker", 0), cluster.pid("ps", 0), flush=True)
time.sleep(60)
"""


# That of SIGKILL is in test_life.py.
def test_tasks_end_with_a_chief_that_is_terminated() -> None:
    with assert_no_leaks(), Command([sys.executable, "-c", SCRIPT], deadline_s=60) as command:
        match = command.wait_for(r"task (\d+) (\d+)")
        tasks = [psutil.Process(int(pid)) for pid in match.groups()]
        command.send(signal.SIGTERM)
        assert command.wait() == -signal.SIGTERM
        for task in tasks:
            task.wait(10)


def test_what_keeps_every_task_from_starting_is_said(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('not a real one')")
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', os.curdir)}"}
    with assert_no_leaks(), raises(TaskFailed, "not a real one"):
        LocalCluster(1, 1, log_dir=tmp_path / "logs", environment=environment)
