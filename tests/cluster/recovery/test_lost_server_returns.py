"""A parameter server is killed and started again: training goes on, what it lacks is counted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, numbered
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tfps.launch import LocalCluster

EPOCHS, SAVE_EVERY, KILL_AFTER = 2, 100, 250

pytestmark = pytest.mark.timeout(240)


class TracedUnits(UnitGradients):
    """Counts how often it is traced as well."""

    traces = 0

    def call(self, inputs: Any) -> Any:
        type(self).traces += 1
        return super().call(inputs)


class KillServer(EpochsOfOneVisit):
    """Kills a server and starts it again, once."""

    def __init__(self, job: CountingJob, index: int) -> None:
        super().__init__(job)
        self.index = index
        self.traces: int | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch >= KILL_AFTER and self.traces is None:
            self.traces = TracedUnits.traces
            self.job.cluster.kill("ps", self.index)
            self.job.cluster.restart("ps", self.index)


class LetServerDie(KillServer):
    """Ends a server as the machine does that runs out of memory; its cluster starts it again."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch >= KILL_AFTER and self.traces is None:
            self.traces = TracedUnits.traces
            os.kill(self.job.cluster.pid("ps", self.index), signal.SIGKILL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def _counting(
    cluster: LocalCluster, folder: Path, *, consistency: tfps.consistency.mode.Mode | None = None
) -> CountingJob:
    recovery = tfps.Recovery(checkpoints=folder, every_steps=SAVE_EVERY)
    return CountingJob(
        cluster,
        counters=TracedUnits,
        placement="round_robin",
        recovery=recovery,
        consistency=consistency,
    )


@pytest.mark.parametrize("mode", ["asynchronous", pytest.param("bounded", marks=pytest.mark.slow)])
@pytest.mark.parametrize("index", [0, 1], ids=["hands out tickets", "another"])
def test_fit_goes_on(
    index: int, mode: str, tasks: Callable[..., LocalCluster], folder: Path
) -> None:
    consistency = {"asynchronous": None, "bounded": tfps.BoundedStaleness(2)}[mode]
    job = _counting(tasks(workers=2, ps=2), folder, consistency=consistency)
    killer = KillServer(job, index)
    job.fit(killer, epochs=EPOCHS)
    steps = EPOCHS * job.epoch_steps
    stats = job.strategy.stats()
    assert killer.wrong_epochs == {}
    assert stats.examples_seen == EPOCHS * job.examples
    assert sum(stats.worker_steps) == steps
    assert stats.versions == (steps, steps)
    assert stats.updates_applied == steps == int(job.model.optimizer.iterations)
    # Each weight counts its updates; those that lay on the server lack what was lost.
    weights = {w._value.device: int(w.numpy()) for w in job.model.trainable_variables}
    servers = job.strategy.runtime.topology.servers
    assert weights[servers[1 - index]] == steps
    assert weights[servers[index]] == steps - stats.updates_lost
    assert 0 <= stats.updates_lost < steps
    assert killer.traces == TracedUnits.traces
    job.strategy.close()


@pytest.mark.slow
def test_its_cluster_starts_it_again(tasks: Callable[..., LocalCluster], folder: Path) -> None:
    cluster = tasks(workers=2, ps=2)
    job = _counting(cluster, folder)
    killer = LetServerDie(job, 1)
    job.fit(killer, epochs=EPOCHS)
    assert killer.wrong_epochs == {}
    assert cluster.keeper.restarts == ["ps 1 (SIGKILL)"]
    assert cluster.keeper.ended is None
    job.strategy.close()


def test_what_no_checkpoint_holds_ends_the_job(
    tasks: Callable[..., LocalCluster], folder: Path
) -> None:
    cluster = tasks(workers=1, ps=2)
    job = _counting(cluster, folder)
    with job.strategy.scope():
        raw = [tf.Variable(1.0, name=f"raw_{k}") for k in range(2)]
    killer = KillServer(job, 1)
    with pytest.raises(tf.errors.UnavailableError, match="no checkpoint holds: raw_"):
        job.fit(killer, epochs=EPOCHS)
    assert raw
    job.strategy.close()


def test_the_job_may_rather_stop(tasks: Callable[..., LocalCluster], folder: Path) -> None:
    cluster = tasks(workers=1, ps=2)
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, batch_callbacks="sampled")
    job = CountingJob(cluster, strategy=strategy)
    manager = tfps.CheckpointManager(job.model, folder)
    strategy.recovery = tfps.Recovery(checkpoints=manager, on_lost_server="stop")
    with pytest.raises(tf.errors.UnavailableError, match="ps 1 at .*on_lost_server"):
        job.fit(KillServer(job, 1), epochs=EPOCHS)
    strategy.close()


def test_scheduled_functions_go_on(tasks: Callable[..., LocalCluster], folder: Path) -> None:
    cluster = tasks(workers=1, ps=2)
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, placement="round_robin")
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        optimizer = keras.optimizers.SGD(-1.0)
        model.compile(optimizer)
    manager = tfps.CheckpointManager(model, folder)
    strategy.recovery = tfps.Recovery(checkpoints=manager)
    x = tf.constant(numbered(4)[0])
    traces = 0

    @tf.function
    def step() -> None:
        nonlocal traces
        traces += 1
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    def run(steps: int) -> None:
        for _ in range(steps):
            coordinator.schedule(step)

    run(20)
    coordinator.join()
    manager.save(background=False)
    known = traces
    run(200)
    cluster.kill("ps", 1)
    cluster.restart("ps", 1)
    run(20)
    coordinator.join()
    stats = strategy.stats()
    assert traces == known
    # A function that was under way runs again, and promises to run at least once.
    assert 240 <= stats.updates_applied <= 241
    weights = sorted(int(np.asarray(weight)) for weight in model.get_weights())
    assert weights[1] - weights[0] == stats.updates_lost
    strategy.close()
