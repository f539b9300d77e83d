"""Kills of workers and servers at random moments, several of them at once: all counts are exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, numbered
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.recovery.killer import Killer
from tfps.launch import LocalCluster
from tfps.recovery.servers.server_loss import updates_lost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEEDS = range(10)
SAVE_EVERY = 40
MOST_EPOCHS = 100_000
WORKERS = 2
TASKS = [("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)]
RESTARTS = tfps.FaultTolerance(restart_budget=1000)

MODES = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(2),
    "synchronous": tfps.Synchronous(),
}


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Tasks that are started again soon, with an ample budget of restarts."""
    monkeypatch.setattr("tfps.recovery.fault_tolerance.LONGEST_BACK_OFF_S", 0.25)
    environment = {"TFPS_LOGICAL_CPUS": "1"}
    with LocalCluster(
        workers=2, ps=2, fault_tolerance=RESTARTS, environment=environment
    ) as cluster:
        yield cluster


class UntilKilled(EpochsOfOneVisit):
    """Ends `fit` after the epoch in which the killer is done; compares every epoch's visits."""

    def __init__(self, job: CountingJob, killer: Killer) -> None:
        super().__init__(job)
        self.killer = killer

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.model.stop_training = not self.killer.is_alive()


def _lost(strategy: tfps.ParameterServerStrategy, server: int) -> int:
    """Return the number of updates that the rows of a server lack."""
    recovery: Any = strategy.run_state.recovery
    losses = recovery.servers.losses
    return updates_lost(loss for loss in losses if loss.server == server)


def _pushes_taken(server: Any) -> int:
    """The pushes that the staleness histogram of a server's ledger has counted."""
    layout = server.layout
    return int(server.cells()[layout.histograms : layout.duration(0, 0)].sum())


@pytest.mark.parametrize("transport", ["direct", "grpc"])
@pytest.mark.parametrize("mode", MODES)
def test_fit(mode: str, transport: str, tasks: LocalCluster, tmp_path: Path) -> None:
    """Each example and update counts once; a server's rows lack the reported updates.

    If no server lives, the record is lost that a ticket was applied which a lost worker had not
    closed: rows have its update once, and the counters may have it twice.
    """
    job = CountingJob(
        tasks,
        examples=200,
        placement="round_robin",
        consistency=MODES[mode],
        transport=transport,
        fault_tolerance=dataclasses.replace(RESTARTS, checkpoints=tmp_path, every_steps=SAVE_EVERY),
    )
    with Killer(job.strategy, tasks, tasks=TASKS, seeds=SEEDS, folder=tmp_path) as killer:
        until = UntilKilled(job, killer)
        epochs = job.fit(until, epochs=MOST_EPOCHS)
    killer.check()
    stats = job.strategy.stats()
    assert until.wrong_epochs == {}
    assert stats.examples_seen == epochs * job.examples
    assert sum(stats.worker_steps) == epochs * job.epoch_steps
    assert set(stats.versions) == {stats.updates_applied}
    if mode == "synchronous":
        assert job.updates_of_servers() == stats.versions
        assert stats.updates_lost == 0
    else:
        counted_twice = stats.updates_applied - epochs * job.epoch_steps
        assert 0 <= counted_twice <= WORKERS * killer.times_without_servers
        for weight in job.model.trainable_variables:
            server = job.strategy.runtime.get_server_index(weight.value.device)
            assert int(weight.numpy()) == stats.updates_applied - _lost(job.strategy, server)
        assert stats.updates_lost == sum(_lost(job.strategy, server) for server in range(2))
    job.strategy.close()


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(
    ("mode", "transport"),
    [
        ("asynchronous", "direct"),
        ("bounded", "direct"),
        ("bounded", "grpc"),
        ("synchronous", "direct"),
        ("synchronous", "grpc"),
    ],
)
def test_scheduled_functions(
    mode: str, transport: str, index: int, tasks: LocalCluster, tmp_path: Path
) -> None:
    """Each counts once on each server; one server lives, and knows the applied pushes.

    In rounds all go back instead, and those since a checkpoint run once more.
    """
    strategy = tfps.ParameterServerStrategy(
        tasks.cluster_resolver,
        placement="round_robin",
        consistency=MODES[mode],
        fault_tolerance=dataclasses.replace(RESTARTS, checkpoints=tmp_path),
        transport=transport,
    )
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        optimizer = keras.optimizers.SGD(-1.0)
        model.compile(optimizer)
    manager = tfps.CheckpointManager(model, tmp_path)
    x = tf.constant(numbered(4)[0])

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    scheduled = 0
    killed = [*TASKS[:2], ("ps", index)]
    with Killer(strategy, tasks, tasks=killed, seeds=SEEDS, folder=tmp_path) as killer:
        while killer.is_alive():
            if scheduled % SAVE_EVERY == 0:
                manager.save()
            coordinator.schedule(step)
            scheduled += 1
        coordinator.join()
    killer.check()
    manager.wait()
    counted = [int(np.asarray(weight.numpy())) for weight in model.trainable_variables]
    stats, servers = strategy.stats(), strategy.runtime.servers
    if mode == "synchronous":
        assert stats.updates_lost == 0
        assert {_pushes_taken(server) for server in servers} == {scheduled}
        apart = [int(server.cells()[server.layout.APART]) for server in servers]
    else:
        assert set(stats.versions) == {scheduled}
        apart = [0 for _ in servers]
    for weight, count in zip(model.trainable_variables, counted, strict=True):
        server = strategy.runtime.get_server_index(weight.value.device)
        found = count + apart[server]
        assert found == stats.versions[server] - _lost(strategy, server)
    strategy.close()
