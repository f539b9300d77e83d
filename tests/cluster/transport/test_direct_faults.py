"""Faults of connections of `direct` during `fit`; nothing is lost or done twice."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tfps.cluster import data_connections
from tfps.launch import LocalCluster
from tfps.runtime.coordinator.data_plane import DataPlane

STEPS = 1000
# Shorter than what a probe takes for a lost task.
PAUSE_S = 1.0

pytestmark = pytest.mark.timeout(180)


class Disturbance(EpochsOfOneVisit):
    """Calls `disturb` every `every_steps` steps."""

    def __init__(self, job: CountingJob, disturb: Callable[[], None], *, every_steps: int) -> None:
        super().__init__(job)
        self.disturb, self.every_steps = disturb, every_steps
        self.times = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch and batch % self.every_steps == 0:
            self.times += 1
            self.disturb()


def fit(job: CountingJob, disturb: Callable[[], None], *, every_steps: int, epochs: int = 2) -> int:
    """Train with a disturbance every `every_steps` steps; return how often it occurred."""
    before = job.updates()
    disturbance = Disturbance(job, disturb, every_steps=every_steps)
    job.fit(disturbance, epochs=epochs)
    assert disturbance.wrong_epochs == {}
    assert job.updates() == job.updates_after(before, epochs=epochs)
    return disturbance.times


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster]) -> Iterator[CountingJob]:
    job = CountingJob(cluster(workers=2, ps=2), transport="direct")
    yield job
    job.strategy.close()


@pytest.mark.slow
@pytest.mark.parametrize("server", [0, 1])
def test_broken_connections_are_made_anew(job: CountingJob, server: int) -> None:
    """They break in the middle of an exchange, on all workers; no task starts again."""
    pids = [job.cluster.pid("worker", index) for index in range(2)]
    hang_up = job.strategy.runtime.data_plane.hang_up
    assert fit(job, lambda: hang_up(server), every_steps=200) > 2
    assert [job.cluster.pid("worker", index) for index in range(2)] == pids
    assert job.strategy.stats().transports == ("direct", "direct")


@pytest.mark.repeats
def test_a_custom_loop_survives_broken_connections(job: CountingJob) -> None:
    """A scheduled function that lost its connection repeats its request at least once."""
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
    assert strategy.stats().transports == ("direct", "direct")


@pytest.mark.rare
def test_more_plans_than_a_server_has_threads(job: CountingJob) -> None:
    """Every set of names is a plan, and each plan has a connection that keeps a thread waiting."""
    spec = job.strategy.cluster
    with job.strategy.scope():
        names = [f"plan_{number}" for number in range(data_connections(spec) + 4)]
        variables = [tf.Variable(float(number), name=name) for number, name in enumerate(names)]
    for _ in range(2):
        for number, name in enumerate(names):
            values, _ = job.strategy.pull([name])
            assert values == {name: number}
    assert fit(job, lambda: None, every_steps=job.epoch_steps // 2, epochs=1) == 1
    assert len(variables) == len(names)


@pytest.mark.rare
def test_strangers_change_nothing(job: CountingJob) -> None:
    """Strangers send garbage, half a greeting, or nothing at all and stay."""
    plane = job.strategy.runtime.data_plane
    assert isinstance(plane, DataPlane)
    endpoints = plane.endpoints
    unknown_clients: list[socket.socket] = []

    def knock() -> None:
        for endpoint in endpoints.values():
            for data in (os.urandom(4096), b"tfps-hi\0\1", b""):
                unknown_client = socket.create_connection((endpoint.host, endpoint.port))
                unknown_client.sendall(data)
                unknown_clients.append(unknown_client)

    assert fit(job, knock, every_steps=200) > 2
    for unknown_client in unknown_clients:
        unknown_client.close()


# Tasks that hang for longer: tests/cluster/recovery/test_stopped_worker.py, test_stopped_server.py.
@pytest.mark.repeats
@pytest.mark.parametrize(("task", "index"), [("worker", 1), ("ps", 0), ("ps", 1)])
def test_a_pause_of_a_task(job: CountingJob, task: str, index: int) -> None:
    """The sender waits for a reader that is slow in the middle of a message."""
    pid = job.cluster.pid(task, index)

    def pause() -> None:
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(PAUSE_S, os.kill, (pid, signal.SIGCONT)).start()

    try:
        assert fit(job, pause, every_steps=450) > 1
    finally:
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)
