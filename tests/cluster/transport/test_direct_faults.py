"""What may happen to connections of `direct` during `fit`; nothing is lost or done twice."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, Visits, mean_output, numbered
from tfps.cluster import data_connections
from tfps.launch import LocalCluster

EXAMPLES, BATCH, STEPS = 2000, 2, 1000
X, LABELS = numbered(EXAMPLES)
# Shorter than what a probe takes for a lost task.
PAUSE_S = 1.0

pytestmark = pytest.mark.timeout(180)


class Job:
    """A strategy over two servers with a model that counts visits and applied updates."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, transport="direct", batch_callbacks="sampled"
        )
        with self.strategy.scope():
            self.visits = Visits(EXAMPLES)
            self.model = keras.Sequential([keras.Input((4,)), UnitGradients()])
            self.model.compile(keras.optimizers.SGD(-1.0), mean_output, metrics=[self.visits])

    def updates(self) -> list[int]:
        """As both weights, the optimizer and all servers have counted them."""
        counts = [*self.model.get_weights(), self.model.optimizer.iterations.numpy()]
        return [int(count) for count in counts] + list(self.strategy.stats().versions)

    def fit(self, disturb: Callable[[], None], *, every_steps: int, epochs: int = 2) -> int:
        """Train while something happens every so many steps; answers how often it did."""
        before = self.updates()
        disturbance = Disturbance(self, disturb, every_steps=every_steps)
        self.model.fit(
            X, LABELS, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[disturbance]
        )
        assert disturbance.wrong_epochs == {}
        assert self.updates() == [count + epochs * STEPS for count in before]
        return disturbance.times


class Disturbance(keras.callbacks.Callback):
    """Disturbs every so many steps, and compares each epoch's visits with one per example."""

    def __init__(self, job: Job, disturb: Callable[[], None], *, every_steps: int) -> None:
        super().__init__()
        self.job, self.disturb, self.every_steps = job, disturb, every_steps
        self.times = 0
        self.wrong_epochs: dict[int, Counter[int]] = {}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch and batch % self.every_steps == 0:
            self.times += 1
            self.disturb()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        visits = Counter(self.job.visits.counts())
        if visits != {1: EXAMPLES}:
            self.wrong_epochs[epoch] = visits


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster]) -> Iterator[Job]:
    job = Job(cluster(workers=2, ps=2))
    yield job
    job.strategy.close()


@pytest.mark.parametrize("server", [0, 1])
def test_broken_connections_are_made_anew(job: Job, server: int) -> None:
    """In the middle of an exchange, on all workers at once; no task starts again."""
    pids = [job.cluster.pid("worker", index) for index in range(2)]
    hang_up = job.strategy.runtime.data_plane.hang_up
    assert job.fit(lambda: hang_up(server), every_steps=200) > 2
    assert [job.cluster.pid("worker", index) for index in range(2)] == pids
    assert job.strategy.stats().carriers == ("direct", "direct")


def test_a_custom_loop_survives_broken_connections(job: Job) -> None:
    """A scheduled function that lost its connection in the middle asks again: at least once."""
    strategy, hang_up = job.strategy, job.strategy.runtime.data_plane.hang_up
    with strategy.scope():
        weights = [keras.Variable(np.zeros([3], "float32"), name=name) for name in ("a", "b")]
        optimizer = keras.optimizers.SGD(-1.0)

    @tf.function
    def step() -> None:
        strategy.run(lambda: optimizer.apply([tf.ones([3])] * 2, weights))

    before = strategy.stats().updates_applied
    for number in range(STEPS):
        strategy.coordinator.schedule(step)
        if number % 100 == 50:
            hang_up(number // 100 % 2)
    strategy.coordinator.join()
    assert strategy.stats().updates_applied - before >= STEPS
    for weight in weights:
        (count,) = set(weight.numpy())
        assert count >= STEPS
    assert strategy.stats().carriers == ("direct", "direct")


@pytest.mark.slow
def test_more_plans_than_a_server_has_threads(job: Job) -> None:
    """Every set of names is a plan, and each plan has a connection that keeps a thread waiting."""
    spec = job.strategy.cluster
    with job.strategy.scope():
        names = [f"plan_{number}" for number in range(data_connections(spec) + 4)]
        variables = [tf.Variable(float(number), name=name) for number, name in enumerate(names)]
    for _ in range(2):
        for number, name in enumerate(names):
            values, _ = job.strategy.pull([name])
            assert values == {name: number}
    assert job.fit(lambda: None, every_steps=STEPS // 2, epochs=1) == 1
    assert len(variables) == len(names)


def test_strangers_change_nothing(job: Job) -> None:
    """Clients that send garbage, half a greeting, or nothing at all and stay."""
    endpoints = job.strategy.runtime.data_plane.endpoints
    strangers: list[socket.socket] = []

    def knock() -> None:
        for endpoint in endpoints.values():
            for data in (os.urandom(4096), b"tfps-hi\0\1", b""):
                stranger = socket.create_connection((endpoint.host, endpoint.port))
                stranger.sendall(data)
                strangers.append(stranger)

    assert job.fit(knock, every_steps=200) > 2
    for stranger in strangers:
        stranger.close()


@pytest.mark.parametrize(("task", "index"), [("worker", 1), ("ps", 0), ("ps", 1)])
def test_a_pause_of_a_task(job: Job, task: str, index: int) -> None:
    """A reader that is slow in the middle of a message is waited for."""
    pid = job.cluster.pid(task, index)

    def pause() -> None:
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(PAUSE_S, os.kill, (pid, signal.SIGCONT)).start()

    try:
        assert job.fit(pause, every_steps=450) > 1
    finally:
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)
