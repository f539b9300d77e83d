"""Rounds of all workers give the numbers of one process, and do not wait for lost workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.counts_afterwards import CountsAfterwards
from tests.cluster.consistency.slow_input import slow_input
from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tests.cluster.suspend_worker import SuspendWorker
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"
BATCH = 10
RANDOM = np.random.default_rng(0)


def _examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = RANDOM.normal(size=(count, 8)).astype("float32")
    return x, x[:, :3].argmax(1)


def _network(optimizer: Any, kind: Any = keras.Sequential) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = kind(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def _strategy(resolver: Any, **options: Any) -> tfps.ParameterServerStrategy:
    return tfps.ParameterServerStrategy(resolver, placement="round_robin", **options)


def _fit(
    cluster: LocalCluster, model: Callable[[], keras.Model], x: np.ndarray, y: np.ndarray
) -> tuple[Any, list[np.ndarray], list[np.ndarray], Any]:
    """Train an epoch of rounds; return the model, its weights before and after, and the counts."""
    strategy = _strategy(cluster.cluster_resolver, consistency="synchronous")
    with strategy.scope():
        made = model()
    before = [np.array(weight) for weight in made.get_weights()]
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    after, stats = made.get_weights(), strategy.stats()
    strategy.close()
    return made, before, after, stats


# First all tests with three workers: going back to a cluster that the chief has left for another
# one in between, TensorFlow takes workers for lost.
@pytest.mark.repeats
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_three_workers_are_one_process(
    cluster: Callable[..., LocalCluster], optimizer: str
) -> None:
    """The last round has a whole batch and a part of one."""
    x, y = _examples(3 * BATCH * 200 + BATCH + 7)
    _, before, after, stats = _fit(cluster(workers=3, ps=2), lambda: _network(optimizer), x, y)
    with tf.device(LOCAL):
        reference = _network(optimizer)
        reference.set_weights(before)
        reference.fit(x, y, batch_size=3 * BATCH, shuffle=False, verbose=0)
    for weight, expected, first in zip(after, reference.get_weights(), before, strict=True):
        moved = np.linalg.norm(expected - first)
        assert np.linalg.norm(weight - expected) <= 2e-6 * moved
    assert stats.updates_applied == 201
    assert stats.examples_seen == len(x)


@pytest.mark.repeats
def test_backup_workers_are_not_waited_for(
    cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    steps = 40
    strategy = _strategy(
        cluster(workers=3, ps=2).cluster_resolver, consistency=tfps.Synchronous(backup_workers=1)
    )
    with strategy.scope():
        model = CountsAfterwards([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(slow_input(steps, tmp_path), epochs=1, verbose=0)
    stats = strategy.stats()
    assert stats.worker_steps == (steps, steps, steps)
    # Worker 1 is late for most rounds while the two others take part, and alone after that.
    assert 0.1 * steps < stats.gradients_dropped <= 2 * steps
    assert stats.versions[0] == stats.versions[1] == stats.updates_applied
    assert steps <= stats.updates_applied < 2.5 * steps
    assert set(stats.gradient_staleness_updates) == {0}
    strategy.close()


@pytest.mark.repeats
def test_averages_move_once_per_round_and_counts_add_up(
    cluster: Callable[..., LocalCluster],
) -> None:
    class Model(CountsAfterwards):
        def __init__(self, layers: list[Any]) -> None:
            super().__init__([*layers, keras.layers.BatchNormalization(momentum=0.5)])

    x, y = _examples(2 * BATCH)
    y = RANDOM.normal(size=(2 * BATCH, 3)).astype("float32")

    def model() -> keras.Model:
        made = Model([keras.Input((8,)), keras.layers.Dense(3, trainable=False)])
        made.compile("sgd", "mse")
        return made

    made, before, after, stats = _fit(cluster(workers=2, ps=2), model, x, y)
    names = [variable.path.split("/")[-1] for variable in made.weights]
    values, first = dict(zip(names, after, strict=True)), dict(zip(names, before, strict=True))
    seen = x @ first["kernel"] + first["bias"]
    np.testing.assert_allclose(values["moving_mean"], 0.5 * seen.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values["moving_variance"], 0.5 + 0.5 * seen.var(0), rtol=1e-4)
    assert values["count"] == 2
    assert stats.worker_steps == (1, 1)
    assert stats.updates_applied == 1


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster(workers=2, ps=2), consistency=tfps.Synchronous(), placement="round_robin"
    )
    yield job
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)  # TensorFlow crashes when a process connects anew in the meantime
    job.strategy.close()


def test_hooks_in_lock_step_see_whole_rounds(job: CountingJob) -> None:
    counts = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            counts.append(int(self.model.optimizer.iterations))

    with job.strategy.scope():
        model = _network("sgd")
    x, y = _examples(5 * BATCH)
    job.strategy.batch_callbacks, before = "lock_step", job.strategy.batch_callbacks
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[Count()])
    job.strategy.batch_callbacks = before
    assert counts == [1, 1, 2, 2, 3]


@pytest.mark.conformance
def test_a_worker_that_dies_is_not_waited_for(job: CountingJob) -> None:
    before, other = job.updates(), job.strategy.stats().versions[0]
    killer = KillWorker(job, restart=True)
    job.fit(killer, epochs=500)
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert killer.wrong_epochs == {}
    counts = [now - then for now, then in zip(job.updates(), before, strict=True)]
    first, second = job.strategy.stats().versions
    assert first == second
    # Tickets that one server had counted before the death are repeated, and add nothing there.
    assert first - other - 3 <= min(counts)
    assert max(counts) <= first - other


@pytest.mark.repeats
def test_a_worker_that_hangs_is_not_waited_for(job: CountingJob) -> None:
    suspend = SuspendWorker(job)
    try:
        assert job.fit(suspend, epochs=1) == 1
    finally:
        job.cluster.resume("worker", 1)
    assert suspend.suspended
    assert suspend.wrong_epochs == {}
