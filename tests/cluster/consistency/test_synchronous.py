"""Rounds wait neither for lost workers nor for backup workers, and hooks see whole rounds.

Their numbers: tests/unit/numbers/modes/test_two_workers.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.consistency.counts_afterwards import CountsAfterwards
from tests.cluster.consistency.slow_input import slow_input
from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tests.cluster.suspend_worker import SuspendWorker
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

BATCH = 10
RANDOM = np.random.default_rng(0)


def _examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = RANDOM.normal(size=(count, 8)).astype("float32")
    return x, x[:, :3].argmax(1)


def _network(optimizer: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def _strategy(resolver: Any, **options: Any) -> tfps.ParameterServerStrategy:
    return tfps.ParameterServerStrategy(resolver, placement="round_robin", **options)


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


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster(workers=2, ps=2), consistency=tfps.Synchronous(), placement="round_robin"
    )
    yield job
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)  # TensorFlow crashes when a process connects anew in the meantime
    job.strategy.close()


@pytest.mark.slow
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


# Quicker ones: a round goes on without a worker in tests/unit/one_process/test_requests_of_fit.py,
# and a worker dies and comes back in ../training/test_lost_worker.py.
@pytest.mark.repeats
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
