"""A parameter server is killed and started again: training goes on, lost updates are counted."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.many_calls import ManyCalls
from tests.cluster.recovery.kill_server import KILL_AFTER, KillForGood, KillServer, TracedUnits
from tests.messages import raises
from tfps.launch import LocalCluster

EPOCHS, SAVE_EVERY = 2, 100

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _alive(request: pytest.FixtureRequest, tasks: Callable[..., LocalCluster]) -> Iterator[None]:
    yield
    if "fresh" in request.fixturenames:
        return
    cluster = tasks(workers=2, ps=2)
    for index in range(2):
        if cluster.status("ps", index) is not None:
            cluster.restart("ps", index)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def _counting(
    cluster: LocalCluster, folder: Path, *, consistency: tfps.consistency.mode.Mode | None = None
) -> CountingJob:
    fault_tolerance = tfps.FaultTolerance(checkpoints=folder, every_steps=SAVE_EVERY)
    return CountingJob(
        cluster,
        counters=TracedUnits,
        placement="round_robin",
        fault_tolerance=fault_tolerance,
        consistency=consistency,
    )


# A quicker one is such a `fit` in test_server_moves.py.
@pytest.mark.parametrize("mode", ["asynchronous", "bounded"])
@pytest.mark.parametrize("index", [0, 1], ids=["hands out tickets", "another"])
def test_fit_goes_on(
    index: int, mode: str, tasks: Callable[..., LocalCluster], folder: Path
) -> None:
    consistency = {"asynchronous": None, "bounded": tfps.BoundedStaleness(2)}[mode]
    job = _counting(tasks(workers=2, ps=2), folder, consistency=consistency)
    # Not in the first epoch: metrics are those of this one, not of the one before.
    killer = KillServer(job, index, epoch=EPOCHS - 1)
    job.fit(killer, epochs=EPOCHS)
    steps = EPOCHS * job.epoch_steps
    stats = job.strategy.stats()
    assert killer.wrong_epochs == {}
    assert stats.examples_seen == EPOCHS * job.examples
    assert sum(stats.worker_steps) == steps
    assert stats.versions == (steps, steps)
    assert stats.updates_applied == steps == int(job.model.optimizer.iterations)
    # Each weight counts its updates; those that lay on the server lack what was lost.
    weights = {w.value.device: int(w.numpy()) for w in job.model.trainable_variables}
    servers = job.strategy.runtime.topology.servers
    assert weights[servers[1 - index]] == steps
    assert weights[servers[index]] == steps - stats.updates_lost
    assert 0 <= stats.updates_lost < steps
    assert killer.traces == TracedUnits.traces
    # The supervisor of the tasks tells of the restart when training ends.
    restart = job.cluster.supervisor.restarts[-1]
    assert restart.startswith(f"ps {index} (SIGKILL, back at update ")
    assert restart.endswith(f"{stats.updates_lost} updates lost on its rows)")
    job.strategy.close()


class LookAtWeights(KillServer):
    """Reads and writes every weight, first right after the kill."""

    looks = 5

    def __init__(self, job: CountingJob, index: int) -> None:
        super().__init__(job, index)
        self.lacks: set[int] = set()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch)
        if self.traces is None or not self.looks:
            return
        self.looks -= 1
        weights = self.job.model.trainable_variables
        places = [weight.value.device for weight in weights]
        lost = self.job.strategy.runtime.topology.servers[self.index]
        values = dict(zip(places, (int(weight.numpy()) for weight in weights), strict=True))
        iterations = int(self.job.model.optimizer.iterations)
        for weight in weights:
            weight.assign(values[weight.value.device])
            weight.value.assign_add(0.0 * weight.value)
        self.lacks.add(iterations - values[lost])
        assert {value for place, value in values.items() if place != lost} == {iterations}


def test_a_callback_that_looks_at_weights_waits_for_the_server(
    tasks: Callable[..., LocalCluster], folder: Path
) -> None:
    job = _counting(tasks(workers=2, ps=2), folder)
    look = LookAtWeights(job, 1)
    job.fit(look, epochs=1)
    assert look.traces is not None
    # No look has found what was made again and not filled yet.
    assert look.lacks == {job.strategy.stats().updates_lost}
    job.strategy.close()


class SeenLine(EpochsOfOneVisit):
    """Notes the texts of the progress line, and the steps that hooks are called for."""

    def __init__(self, job: CountingJob) -> None:
        super().__init__(job)
        self.notes: set[str] = set()
        self.steps: list[int] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.job.strategy.run_state.progress = self

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(-1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append(batch)

    kind, target = "train", None

    def show(self, current: int, note: str = "") -> None:
        self.notes.add(note)

    @contextlib.contextmanager
    def show_during(self, note: str) -> Iterator[None]:
        yield


@pytest.fixture
def fresh() -> Iterator[LocalCluster]:
    """A cluster whose servers have spent none of their restarts on other tests."""
    with LocalCluster(workers=2, ps=2, environment={"TFPS_LOGICAL_CPUS": "1"}) as cluster:
        yield cluster


def _repeat(cluster: LocalCluster, folder: Path, *, index: int, mode: tfps.Synchronous) -> None:
    """Check that nothing is lost: all servers go back to a checkpoint, unseen by hooks."""
    job = _counting(cluster, folder, consistency=mode)
    killer, line = KillServer(job, index), SeenLine(job)
    job.fit(killer, line, epochs=1)
    steps, stats = job.epoch_steps, job.strategy.stats()
    assert killer.traces == TracedUnits.traces
    assert killer.wrong_epochs == {}
    assert line.steps == [-1, *range(steps)]
    assert (stats.examples_seen, sum(stats.worker_steps)) == (job.examples, steps)
    assert set(job.updates()) == {stats.updates_applied}
    if mode == tfps.Synchronous():
        assert steps // 2 <= stats.updates_applied < steps  # a save may cut a round in two
    assert stats.updates_lost == 0
    restart = job.cluster.supervisor.restarts[-1]
    assert restart.startswith(f"ps {index} (SIGKILL, all servers back at update ")
    repeated = restart.rpartition(": ")[2].removesuffix(" are repeated)")
    # None are where the kill came just after a checkpoint.
    assert (f"repeating {repeated}" in line.notes) == (repeated != "0 steps")
    job.strategy.close()


def test_rounds_are_repeated(tasks: Callable[..., LocalCluster], folder: Path) -> None:
    _repeat(tasks(workers=2, ps=2), folder, index=0, mode=tfps.Synchronous())


ROUNDS = {
    "another": (1, tfps.Synchronous(), "auto"),
    "with a backup worker": (0, tfps.Synchronous(backup_workers=1), "auto"),
    "by grpc": (0, tfps.Synchronous(), "grpc"),
}


@pytest.mark.parametrize(("index", "mode", "transport"), ROUNDS.values(), ids=ROUNDS)
def test_rounds_of_other_kinds(
    index: int, mode: tfps.Synchronous, transport: str, fresh: LocalCluster, folder: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if transport != "auto":
            patch.setenv("TFPS_TRANSPORT", transport)
        _repeat(fresh, folder, index=index, mode=mode)


class KillAtRandom(SeenLine):
    """Kills a random server at some random steps, also while another one is brought back."""

    def __init__(self, job: CountingJob, seed: int) -> None:
        super().__init__(job)
        random = np.random.default_rng(seed)
        steps = random.integers(1, job.epoch_steps - 1, size=3)
        self.kills = {int(step): int(random.integers(2)) for step in steps}
        self.killed = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        index = self.kills.get(batch)
        if index is not None and self.job.cluster.status("ps", index) is None:
            os.kill(self.job.cluster.pid("ps", index), signal.SIGKILL)
            self.killed += 1


@pytest.mark.parametrize("seed", range(3))
def test_rounds_are_repeated_at_any_moment(seed: int, fresh: LocalCluster, folder: Path) -> None:
    job = _counting(fresh, folder, consistency=tfps.Synchronous())
    killer = KillAtRandom(job, seed)
    job.fit(killer, epochs=1)
    stats = job.strategy.stats()
    assert killer.killed
    assert killer.wrong_epochs == {}
    assert killer.steps == [-1, *range(job.epoch_steps)]
    assert (stats.examples_seen, sum(stats.worker_steps)) == (job.examples, job.epoch_steps)
    assert set(job.updates()) == {stats.updates_applied}
    assert stats.updates_lost == 0
    job.strategy.close()


def test_the_job_may_rather_stop(tasks: Callable[..., LocalCluster], folder: Path) -> None:
    cluster = tasks(workers=2, ps=2)
    fault_tolerance = tfps.FaultTolerance(checkpoints=folder, on_lost_server="stop")
    job = CountingJob(cluster, fault_tolerance=fault_tolerance)
    with raises(tf.errors.UnavailableError, "on_lost_server"):
        job.fit(KillForGood(job, 1), epochs=EPOCHS)
    job.strategy.close()


def _functions_go_on(cluster: LocalCluster, folder: Path, *, mode: Any = None) -> None:
    """Lose a server, then a worker: the living servers have each optimizer call once."""
    strategy = tfps.ParameterServerStrategy(
        cluster.cluster_resolver,
        placement="round_robin",
        consistency=mode,
        fault_tolerance=tfps.FaultTolerance(checkpoints=folder),
    )
    loop = ManyCalls(strategy)
    manager = tfps.CheckpointManager(loop.model, folder)
    loop.schedule(4)
    loop.coordinator.join()
    manager.save(background=False)
    traces = loop.traces
    loop.schedule(60)
    loop.wait_for(loop.calls * 12)
    cluster.kill("ps", 1)
    cluster.restart("ps", 1)
    loop.schedule(10)
    loop.coordinator.join()
    assert loop.traces == traces
    _count_once(loop)
    loop.schedule(60)
    loop.wait_for(loop.expected - loop.calls * 48)
    os.kill(cluster.pid("worker", 1), signal.SIGKILL)  # the supervisor starts it again
    loop.coordinator.join()
    _count_once(loop)
    strategy.close()


def _count_once(loop: ManyCalls) -> None:
    stats, values = loop.strategy.stats(), loop.values()
    lived, came_back = loop.strategy.runtime.topology.servers
    assert stats.versions == (loop.expected, loop.expected)
    assert loop.iterations() == loop.expected
    assert values[lived] == loop.expected
    assert values[came_back] == loop.expected - stats.updates_lost


def test_scheduled_functions_go_on(tasks: Callable[..., LocalCluster], folder: Path) -> None:
    _functions_go_on(tasks(workers=2, ps=2), folder)


@pytest.mark.parametrize("mode", [tfps.Asynchronous(), tfps.BoundedStaleness(2)], ids=str)
def test_scheduled_functions_go_on_by_grpc(
    mode: Any, fresh: LocalCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFPS_TRANSPORT", "grpc")
    _functions_go_on(fresh, folder, mode=mode)


class HangServer(EpochsOfOneVisit):
    """Lets a server hang for longer than it may; then it goes on by itself."""

    def __init__(self, job: CountingJob, index: int) -> None:
        super().__init__(job)
        self.index, self.timer = index, threading.Timer(5.0, self._resume)
        self.was_lost = False

    def _resume(self) -> None:
        self.was_lost = self.job.strategy.tasks[f"ps {self.index}"] == "lost"
        self.job.cluster.resume("ps", self.index)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch >= KILL_AFTER and self.timer.ident is None:
            self.job.cluster.suspend("ps", self.index)
            self.timer.start()


def test_who_hung_has_lost_nothing(tasks: Callable[..., LocalCluster], folder: Path) -> None:
    job = _counting(tasks(workers=2, ps=2), folder)
    hang = HangServer(job, 1)
    job.fit(hang, epochs=EPOCHS)
    hang.timer.join()
    assert hang.was_lost
    assert hang.wrong_epochs == {}
    assert set(job.updates()) == {EPOCHS * job.epoch_steps}
    assert job.strategy.stats().updates_lost == 0
    job.strategy.close()
