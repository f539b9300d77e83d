"""Workers that are started again by their cluster, and jobs that end without workers."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.harness.leaks import assert_no_leaks
from tests.messages import raises
from tfps.launch import LocalCluster

DEADLINE_S = 60.0
MOST_EPOCHS = 500

pytestmark = pytest.mark.timeout(180)


def _kill(cluster: LocalCluster, *workers: int) -> None:
    """Kill workers without the cluster's request, as a machine out of memory does."""
    for worker in workers:
        os.kill(cluster.pid("worker", worker), signal.SIGKILL)


class KillAll(EpochsOfOneVisit):
    """Kills every worker within an epoch, then trains on until each has worked again."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.killed and batch > 100:
            self.killed = True
            _kill(self.job.cluster, 0, 1)

    killed = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.model.stop_training = min(self.job.strategy.stats().worker_lives) > 1


@pytest.mark.slow
def test_both_workers_are_killed_and_work_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tfps")
    with assert_no_leaks(), LocalCluster(workers=2, ps=1) as cluster:
        job = CountingJob(cluster)
        killer = KillAll(job)
        epochs = job.fit(killer, epochs=MOST_EPOCHS)
        assert killer.wrong_epochs == {}
        assert set(job.updates()) == {epochs * job.epoch_steps}
        stats = job.strategy.stats()
        assert min(stats.worker_lives) > 1
        assert {*stats.tasks.values()} == {"alive"}
        restarts = ["worker 0 (SIGKILL)", "worker 1 (SIGKILL)"]
        assert sorted(cluster.supervisor.restarts) == restarts
        assert f"2 restarts: {', '.join(cluster.supervisor.restarts)}" in caplog.messages
    for worker in (0, 1):
        assert f"worker {worker} ended by SIGKILL and is started again in 250 ms" in caplog.text
        assert f"worker {worker} is back after" in caplog.text
    assert "Start them again" not in caplog.text


@pytest.mark.repeats
def test_a_job_ends_when_its_last_worker_cannot_return() -> None:
    fault_tolerance = tfps.FaultTolerance(restart_budget=0)
    with (
        assert_no_leaks(),
        LocalCluster(workers=2, ps=1, fault_tolerance=fault_tolerance) as cluster,
    ):
        job = CountingJob(cluster)
        job.fit(epochs=1)
        killer = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: _kill(cluster, 0, 1))
        reason = "worker 0, worker 1 died, and the budget of restarts is 0"
        with raises(tf.errors.UnavailableError, "no worker is left", received=reason):
            job.fit(killer, epochs=MOST_EPOCHS)


@pytest.fixture(scope="module")
def machines(cluster: Callable[..., LocalCluster]) -> LocalCluster:
    """A cluster whose tasks the test ends by itself: they are not started again."""
    return cluster(workers=2, ps=1)


NOBODY = "none of 2 workers has responded for 2 s (no_worker_timeout_s)"


def _lose_all(machines: LocalCluster) -> None:
    for worker in (0, 1):
        machines.kill("worker", worker)


def _bring_back(machines: LocalCluster, strategy: tfps.ParameterServerStrategy) -> None:
    for worker in (0, 1):
        machines.restart("worker", worker)
    ends_at = time.monotonic() + DEADLINE_S
    while {*strategy.tasks.values()} != {"alive"}:
        assert time.monotonic() < ends_at, strategy.tasks
        time.sleep(0.05)


@pytest.mark.repeats
def test_functions_wait_for_so_long_for_a_worker(machines: LocalCluster) -> None:
    fault_tolerance = tfps.FaultTolerance(no_worker_timeout_s=2)
    strategy = tfps.ParameterServerStrategy(
        machines.cluster_resolver, fault_tolerance=fault_tolerance
    )
    with strategy.scope():
        count = tf.Variable(0)

    @tf.function
    def step() -> None:
        count.assign_add(1)

    def run(steps: int) -> None:
        for _ in range(steps):
            strategy.coordinator.schedule(step)
        strategy.coordinator.join()

    run(10)
    _lose_all(machines)
    with raises(tf.errors.UnavailableError, NOBODY):
        run(10)
    _bring_back(machines, strategy)
    before = int(count)
    run(10)
    assert int(count) >= before + 10
    strategy.close()
