"""A task is stopped when the chief registers a function with every task: the chief lives on."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

# A chief that stands still cannot end the test: another process does.
HELP_AFTER_S = 60

pytestmark = [pytest.mark.rare, pytest.mark.timeout(180)]


@pytest.fixture
def stop(tasks: Callable[..., LocalCluster]) -> Iterator[Callable[[str], None]]:
    """Return a function that stops a task of the cluster; it goes on at the test's end."""
    helpers = []

    def stop(task_type: str) -> None:
        cluster = tasks(workers=1, ps=1)
        process = cluster.pid(task_type, 0)
        command = f"sleep {HELP_AFTER_S}; kill -CONT {process}"
        helpers.append(subprocess.Popen(["sh", "-c", command], start_new_session=True))
        cluster.suspend(task_type, 0)

    yield stop
    for helper in helpers:
        os.killpg(helper.pid, signal.SIGKILL)
        helper.wait()


class Onlooker(threading.Thread):
    """Waits, in this process, until a task is lost, and lets it go on."""

    def __init__(
        self, strategy: tfps.ParameterServerStrategy, task: str, act: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True)
        self.strategy, self.task, self.act = strategy, task, act
        self.has_acted = False

    def run(self) -> None:
        while self.strategy.tasks[self.task] != "lost":
            time.sleep(0.05)
        self.has_acted = True
        self.act()


@tf.function
def _nothing() -> tf.Tensor:
    return tf.constant(1)


def _trace() -> tf.types.experimental.ConcreteFunction:
    return tf.function(lambda x: x + 1.0).get_concrete_function(tf.TensorSpec([]))


def _started(cluster: LocalCluster) -> tfps.ParameterServerStrategy:
    """A strategy whose tasks are probed."""
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    coordinator = tfps.ClusterCoordinator(strategy)
    coordinator.schedule(_nothing)
    coordinator.join()
    return strategy


def test_a_worker(
    tasks: Callable[..., LocalCluster],
    stop: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = tasks(workers=1, ps=1)
    strategy = _started(cluster)
    with caplog.at_level(logging.WARNING, logger="tfps"):
        stop("worker")
        onlooker = Onlooker(strategy, "worker 0", lambda: cluster.resume("worker", 0))
        onlooker.start()
        function = _trace()
    assert onlooker.has_acted
    assert "SIGCONT" in caplog.text
    assert float(function(tf.constant(1.0))) == 2.0
    value = strategy.coordinator.schedule(function, args=(tf.constant(2.0),))
    assert float(strategy.coordinator.fetch(value)) == 3.0
    strategy.close()


def test_a_server(tasks: Callable[..., LocalCluster], stop: Callable[[str], None]) -> None:
    """Its connections are cut when it is found lost, which ends the wait."""
    cluster = tasks(workers=1, ps=1)
    strategy = _started(cluster)
    stop("ps")
    onlooker = Onlooker(strategy, "ps 0", lambda: None)
    onlooker.start()
    function = _trace()
    onlooker.join()
    assert float(function(tf.constant(1.0))) == 2.0
    cluster.resume("ps", 0)
    strategy.close()
