"""A cluster of real processes under TensorFlow's own strategy: training and every kind of loss."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import psutil
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tfps.cluster import accepts_connections
from tfps.errors import ClusterError
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)


class Counter:
    """A variable on the server that scheduled steps count up."""

    def __init__(self, cluster: LocalCluster) -> None:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_resolver)
        self.coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            self.variable = tf.Variable(0.0)

        @tf.function
        def step() -> tf.Tensor:
            self.variable.assign_add(1.0)
            return self.variable.read_value()

        self._step = step

    def count(self, steps: int) -> float:
        """Run steps on the living workers and return the counter."""
        for _ in range(steps):
            self.coordinator.schedule(self._step)
        self.coordinator.join()
        return float(self.variable.numpy())


@pytest.fixture(scope="module")
def local(cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return cluster(workers=2, ps=1)


@pytest.fixture(scope="module")
def counter(local: LocalCluster) -> Counter:
    return Counter(local)


def test_trains(local: LocalCluster, counter: Counter) -> None:
    before = counter.count(1)
    assert counter.count(20) == before + 20
    # By this the tasks know that the chief lives.
    assert accepts_connections(local.spec.address("chief", 0))


@pytest.mark.rare
def test_large_messages(local: LocalCluster) -> None:
    strategy = tf.distribute.ParameterServerStrategy(local.cluster_resolver)
    with strategy.scope():
        table = tf.Variable(tf.zeros([6_000_000]))  # gRPC alone would refuse more than 4 MB
    table.assign(tf.ones([6_000_000]))
    assert float(tf.reduce_sum(table.read_value())) == 6_000_000


@pytest.mark.repeats
def test_tasks_are_processes_with_logs(local: LocalCluster) -> None:
    assert str(local).splitlines()[1].startswith("chief 0    127.0.0.1:")
    assert list(local.logs) == ["worker 0", "worker 1", "ps 0"]
    for name, path in local.logs.items():
        assert f"tfps: {name} serves at 127.0.0.1:" in path.read_text()
    own = {child.pid for child in psutil.Process().children(recursive=True)}
    assert {local.pid("worker", 0), local.pid("worker", 1), local.pid("ps", 0)} <= own
    with raises(ClusterError, "worker 2", remedy="worker 0, worker 1, ps 0"):
        local.pid("worker", 2)


@pytest.mark.repeats
def test_a_killed_worker_comes_back(local: LocalCluster, counter: Counter) -> None:
    before = counter.count(1)
    first = local.pid("worker", 1)
    local.kill("worker", 1)
    assert local.status("worker", 1) == -signal.SIGKILL
    assert local.failures() == []  # it was asked for
    assert not accepts_connections(local.spec.address("worker", 1))
    assert counter.count(10) >= before + 10  # the other one does it all
    local.restart("worker", 1)
    assert local.pid("worker", 1) != first
    assert accepts_connections(local.spec.address("worker", 1))
    assert counter.count(10) >= before + 20


@pytest.mark.repeats
def test_a_suspended_worker_goes_on(local: LocalCluster, counter: Counter) -> None:
    before = counter.count(1)
    local.suspend("worker", 0)
    assert psutil.Process(local.pid("worker", 0)).status() == psutil.STATUS_STOPPED
    threading.Timer(1.0, local.resume, ["worker", 0]).start()
    assert counter.count(40) == before + 40  # a step that it holds is not given to the other
    assert psutil.Process(local.pid("worker", 0)).status() != psutil.STATUS_STOPPED


@pytest.mark.repeats
def test_sigterm_ends_a_task(local: LocalCluster) -> None:
    local.kill("worker", 1, signal=signal.SIGTERM)
    assert local.status("worker", 1) == 128 + signal.SIGTERM
    local.restart("worker", 1)


@pytest.mark.repeats
def test_a_lost_server_is_an_unavailable_error(local: LocalCluster, counter: Counter) -> None:
    local.kill("ps", 0)
    with pytest.raises(tf.errors.UnavailableError):
        counter.count(10)
    local.restart("ps", 0)
    assert local.status("ps", 0) is None
