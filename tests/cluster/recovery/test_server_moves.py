"""A task is lost, and is started again somewhere else: the same chief follows it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, numbered
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.kill_worker import KillWorker
from tests.cluster.recovery.kill_server import TracedUnits
from tfps.launch import LocalCluster
from tfps.transport.setting import TRANSPORT_VARIABLE

pytestmark = pytest.mark.timeout(240)

SAVE_EVERY = 100
MOST_EPOCHS = 500


class MoveServers(EpochsOfOneVisit):
    """Kills servers after certain batches, and starts them again at other addresses."""

    def __init__(self, job: CountingJob, *indices: int, after: tuple[int, ...] = (250,)) -> None:
        super().__init__(job)
        self.indices, self.after = indices, list(after)
        self.traces: int | None = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        while self.after and batch >= self.after[0]:
            self.after.pop(0)
            self.traces = TracedUnits.traces
            for index in self.indices:
                self.job.cluster.kill("ps", index)
            for index in self.indices:
                self.restart(index)

    def restart(self, index: int) -> None:
        self.job.cluster.restart("ps", index, new_port=True)


def _job(
    cluster: LocalCluster,
    folder: Path,
    *,
    mode: tfps.consistency.mode.Mode | None = None,
    resolver: Any = None,
    examples: int = 2000,
) -> CountingJob:
    strategy = tfps.ParameterServerStrategy(
        resolver or cluster.cluster_resolver,
        batch_callbacks="sampled",
        placement="round_robin",
        consistency=mode,
        fault_tolerance=tfps.FaultTolerance(
            checkpoints=folder / "checkpoints", every_steps=SAVE_EVERY
        ),
    )
    return CountingJob(cluster, examples=examples, counters=TracedUnits, strategy=strategy)


def _train(job: CountingJob, move: MoveServers) -> None:
    """Train while servers move; check that updates count once and only unsaved ones are lost."""
    before = job.strategy.cluster
    job.fit(move, epochs=1)
    steps, stats = job.epoch_steps, job.strategy.stats()
    assert move.after == []
    assert move.traces == TracedUnits.traces
    assert move.wrong_epochs == {}
    assert (stats.examples_seen, sum(stats.worker_steps)) == (job.examples, steps)
    for index in range(before.count("ps")):
        has_moved = job.strategy.cluster.address("ps", index) != before.address("ps", index)
        assert has_moved == (index in move.indices)
    assert job.strategy.cluster.jobs == job.cluster.spec.jobs
    if isinstance(job.strategy.consistency, tfps.Synchronous):
        assert set(job.updates()) == {stats.updates_applied}
        assert stats.updates_lost == 0
    else:
        assert stats.updates_applied == steps == int(job.model.optimizer.iterations)
        servers = job.strategy.runtime.topology.servers
        weights = {w.value.device: int(w.numpy()) for w in job.model.trainable_variables}
        lacks = [steps - weights[server] for server in servers]
        assert sum(lacks) == stats.updates_lost
        assert all(not each for index, each in enumerate(lacks) if index not in move.indices)
    job.strategy.close()


@pytest.mark.slow
def test_training_follows_the_server_that_hands_out_tickets(
    tasks: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    job = _job(tasks(workers=2, ps=2), tmp_path, examples=800)
    wanted = os.environ.get(TRANSPORT_VARIABLE, "direct")
    assert set(job.strategy.runtime.data_plane.carriers) == {wanted}
    _train(job, MoveServers(job, 0, after=(150,)))


class Variant(NamedTuple):
    """The servers that are lost, and the kind of job."""

    transport: str = "auto"
    mode: tfps.consistency.mode.Mode | None = None
    indices: tuple[int, ...] = (0,)
    after: tuple[int, ...] = (250,)


VARIANTS = {
    "by grpc": Variant("grpc"),
    "another, by grpc": Variant("grpc", indices=(1,)),
    "another": Variant(indices=(1,)),
    "bounded": Variant(mode=tfps.BoundedStaleness(2)),
    "rounds": Variant(mode=tfps.Synchronous()),
    "rounds, by grpc": Variant("grpc", tfps.Synchronous(), indices=(1,)),
    "both": Variant(indices=(0, 1)),
    "both, in rounds": Variant(mode=tfps.Synchronous(), indices=(1, 0)),
    "twice": Variant(after=(250, 600)),
    "twice at once": Variant(after=(250, 250)),
    "both twice, by grpc": Variant("grpc", indices=(0, 1), after=(250, 600)),
}


@pytest.mark.repeats
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_training_follows(
    variant: Variant,
    tasks: Callable[..., LocalCluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TRANSPORT_VARIABLE, variant.transport)
    job = _job(tasks(workers=2, ps=2), tmp_path, mode=variant.mode)
    _train(job, MoveServers(job, *variant.indices, after=variant.after))


@pytest.mark.repeats
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_scheduled_functions_follow(
    transport: str,
    tasks: Callable[..., LocalCluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TRANSPORT_VARIABLE, transport)
    cluster = tasks(workers=2, ps=2)
    folder = tmp_path / "checkpoints"
    strategy = tfps.ParameterServerStrategy(
        cluster.cluster_resolver,
        placement="round_robin",
        fault_tolerance=tfps.FaultTolerance(checkpoints=folder),
    )
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), UnitGradients()])
        optimizer = keras.optimizers.SGD(-1.0)
        model.compile(optimizer)
    manager = tfps.CheckpointManager(model, folder)
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
    cluster.kill("ps", 0)
    cluster.restart("ps", 0, new_port=True)
    run(20)
    coordinator.join()
    stats = strategy.stats()
    assert traces == known
    # A function that was under way runs again, and promises to run at least once.
    assert 240 <= stats.updates_applied <= 242
    weights = sorted(int(np.asarray(weight)) for weight in model.get_weights())
    assert weights[1] - weights[0] == stats.updates_lost
    strategy.close()


class Scheduler(tf.distribute.cluster_resolver.ClusterResolver):
    """A user's own resolver, wrong while servers have moved, and right in the end."""

    task_type, task_id, rpc_layer = "chief", 0, "grpc"

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__()
        self.cluster, self.at_first = cluster, cluster.spec
        self.asked = 0

    def cluster_spec(self) -> tf.train.ClusterSpec:
        jobs: dict[str, list[str]] = {name: list(a) for name, a in self.cluster.spec.jobs.items()}
        if self.cluster.spec.jobs != self.at_first.jobs:
            self.asked += 1
            if self.asked == 1:
                raise OSError("the scheduler restarts")
            if self.asked == 2:
                jobs["ps"].pop()
            if self.asked == 3:
                jobs["ps"].reverse()
        return tf.train.ClusterSpec(jobs)

    def master(self, *_: Any, **__: Any) -> str:
        return f"grpc://{self.cluster.spec.address('chief', 0)}"


@pytest.mark.rare
def test_who_says_nonsense_is_asked_again(
    tasks: Callable[..., LocalCluster], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = tasks(workers=2, ps=2)
    scheduler = Scheduler(cluster)
    job = _job(cluster, tmp_path, resolver=scheduler)
    address = job.strategy.cluster.address("ps", 1)
    with caplog.at_level(logging.WARNING, logger="tfps"):
        _train(job, MoveServers(job, 0))
    assert scheduler.asked >= 4
    for text in (
        "new addresses of lost tasks: OSError('the scheduler restarts')",
        "Scheduler: cluster.ps: received 1 addresses, expected 2",
        f"ps 0 should be at {address}, but ps 1 responds there",
    ):
        assert caplog.text.count(text) == 1


class MoveWorker(KillWorker):
    """Ends worker 1, and starts it again at another address."""

    def _start(self) -> None:
        self.job.cluster.restart("worker", 1, new_port=True)


@pytest.mark.quick("auto-arrays")
@pytest.mark.parametrize("data", ["arrays", "shards"])
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_training_follows_a_worker(
    transport: str, data: str, tasks: Callable[..., LocalCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRANSPORT_VARIABLE, transport)
    job = CountingJob(tasks(workers=2, ps=1))
    before, known = job.updates(), job.strategy.cluster
    move = MoveWorker(job, restart=True)
    shards = tfps.ShardedDataset(job.share, number=4) if data == "shards" else None
    epochs = job.fit(move, epochs=MOST_EPOCHS, data=shards)
    assert move.wrong_epochs == {}
    assert move.works_again
    assert job.updates() == job.updates_after(before, epochs=epochs)
    assert job.strategy.stats().worker_lives == (1, 2)
    assert job.strategy.cluster.jobs == job.cluster.spec.jobs != known.jobs
    job.strategy.close()
