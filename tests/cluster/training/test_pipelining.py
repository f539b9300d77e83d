"""`Asynchronous(pipeline_steps=1)`: a delay of exactly one, and nothing lost or done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.launch import LocalCluster

BATCH, BATCHES = 8, 12
X = np.random.default_rng(1).random((BATCH * BATCHES, 4), np.float32)
Y = np.random.default_rng(2).random((BATCH * BATCHES, 3), np.float32)
CHIEF = "/device:CPU:0"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster]) -> Iterator[CountingJob]:
    job = CountingJob(cluster(workers=2, ps=2), consistency=tfps.Asynchronous(pipeline_steps=1))
    yield job
    job.strategy.close()


def test_every_gradient_lacks_one_update(cluster: Callable[..., LocalCluster]) -> None:
    expected = _delayed_by_one()
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, consistency=tfps.Asynchronous(pipeline_steps=1)
    )
    with strategy.scope():
        model = _model()
    model.fit(X, Y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    for found, weight in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(found, weight, atol=1e-6)
    stats = strategy.stats()
    assert stats.gradient_staleness_updates == {0: 1, 1: BATCHES - 1}
    assert stats.versions == (BATCHES, BATCHES)
    assert stats.examples_seen == BATCH * BATCHES
    strategy.close()


def _model() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    return model


def _delayed_by_one() -> list[np.ndarray]:
    """The weights when each gradient is computed from the parameters of one update ago."""
    with tf.device(CHIEF):
        model = _model()
        model.optimizer.build(model.trainable_variables)
        before = now = [tf.constant(weight) for weight in model.get_weights()]
        for first in range(0, BATCH * BATCHES, BATCH):
            x, y = X[first : first + BATCH], Y[first : first + BATCH]
            mapping = list(zip(model.trainable_variables, before, strict=True))
            with keras.StatelessScope(state_mapping=mapping), tf.GradientTape() as tape:
                tape.watch(before)
                loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
            model.optimizer.apply(tape.gradient(loss, before), model.trainable_variables)
            before, now = now, [tf.constant(weight) for weight in model.get_weights()]
        return model.get_weights()


@pytest.mark.slow
def test_two_workers_lose_nothing(job: CountingJob) -> None:
    before, seen = job.updates(), job.strategy.stats().examples_seen
    assert job.fit(epochs=2) == 2
    assert job.updates() == job.updates_after(before, epochs=2)
    assert set(job.visits.counts()) == {1}
    assert job.strategy.stats().examples_seen - seen == 2 * job.examples


@pytest.mark.slow
def test_a_killed_worker_takes_nothing_with_it(job: CountingJob) -> None:
    before = job.updates()
    killer = KillWorker(job, restart=False)
    epochs = job.fit(killer, epochs=100)  # the callback ends it after an epoch without the worker
    assert killer.steps_at_death is not None
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(before, epochs=epochs)
    job.cluster.restart("worker", 1)


class TwoOptimizers(keras.Sequential):
    """A step that reads the reply to its first push."""

    def train_step(self, data: Any) -> Any:
        super().train_step(data)
        return super().train_step(data)


def test_what_cannot_be_pipelined_says_so(
    job: CountingJob, caplog: pytest.LogCaptureFixture
) -> None:
    with job.strategy.scope():
        model = TwoOptimizers([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(X, Y, batch_size=BATCH, epochs=1, verbose=0)
    assert "is not pipelined" in caplog.text
    assert int(model.optimizer.iterations.numpy()) == 2 * BATCHES
