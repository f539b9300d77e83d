"""Rounds whose batches are shared out by speed: the share of each worker, and their mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import CustomLoop
from tests.cluster.counting import mean_output, numbered
from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.errors import UnsupportedError
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"
SLOW_S = 0.03
BATCHES = 4  # of a round, for each worker
DATA_STEPS = 200  # of each worker
STEPS = 160  # of both together


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        placement="round_robin",
        batch_callbacks="sampled",
        consistency=tfps.Synchronous(adaptive_batches=BATCHES),
    )
    yield strategy
    strategy.close()


class CountCalls(keras.layers.Layer):
    """A layer whose weight grows by one with each batch."""

    def build(self, input_shape: Any) -> None:
        self.count = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, name="count"
        )

    def call(self, inputs: Any) -> Any:
        self.count.assign_add(1)
        return inputs


def _pause(number: tf.Tensor) -> tf.Tensor:
    time.sleep(SLOW_S)
    return number


def _sizes(numbers: Any) -> Any:
    """The sizes of a worker's batches."""
    return 4 - 2 * (numbers % 3 // 2)


def _numbered_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Every batch has an input of its own that is 1; worker 1 takes its time for each."""
    worker = context.input_pipeline_id

    def batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = _sizes(number)
        position = tf.fill([size], worker * DATA_STEPS + number)
        return tf.one_hot(position, 2 * DATA_STEPS), tf.zeros([size, 1])

    numbers = tf.data.Dataset.range(DATA_STEPS)
    if worker == 1:
        numbers = numbers.map(
            lambda number: tf.ensure_shape(tf.py_function(_pause, [number], tf.int64), [])
        )
    return numbers.map(batch).prefetch(0)


# By the same requests without a cluster: tests/unit/one_process/test_requests_of_fit.py.
@pytest.mark.conformance
def test_who_is_faster_takes_more_and_each_example_weighs_the_same(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    """A weight moves by its batch's share of the round's examples: n / all of them."""
    with strategy.scope():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((2 * DATA_STEPS,)), CountCalls(), dense])
        model.compile(keras.optimizers.SGD(-1.0), mean_output)
    before = strategy.stats()
    model.fit(_numbered_batches, steps_per_epoch=STEPS, verbose=0)
    after = strategy.stats()
    steps = np.subtract(after.worker_steps, before.worker_steps)
    rounds = after.updates_applied - before.updates_applied
    assert sum(steps) == STEPS == int(model.layers[0].count)
    assert steps[1] < steps[0] / 2
    # Quotas are rounded; the first rounds and the last are others.
    assert rounds == int(model.optimizer.iterations)
    assert rounds <= 1.5 * STEPS / (2 * BATCHES)

    shares = dense.kernel.numpy().reshape(2, DATA_STEPS)
    visited = np.arange(DATA_STEPS) < steps[:, None]
    np.testing.assert_array_equal(shares > 0, visited)
    np.testing.assert_allclose(shares.sum(), rounds, rtol=1e-5)
    sizes = np.broadcast_to(_sizes(np.arange(DATA_STEPS)), shares.shape)[visited]
    of_rounds = sizes / shares[visited]
    np.testing.assert_allclose(of_rounds, of_rounds.round(), rtol=1e-4)
    # Batches whose shares say that their round had this many examples make whole rounds of it.
    for examples in np.unique(of_rounds.round()):
        there = sizes[of_rounds.round() == examples].sum()
        assert there % examples == 0


def test_what_cannot_be_shared_out_is_refused(strategy: tfps.ParameterServerStrategy) -> None:
    class Twice(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            super().train_step(data)
            return super().train_step(data)

    with strategy.scope():
        model = Twice([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones([8, 1], "float32")
    with pytest.raises(UnsupportedError, match="received a training step of 2 exchanges under"):
        model.fit(x, x, verbose=0)

    with pytest.raises(UnsupportedError, match="leave adaptive_batches out"):
        CustomLoop(strategy, "sgd").run(1)


def test_batches_that_the_chief_sends_are_kept_until_they_are_closed(
    strategy: tfps.ParameterServerStrategy, cluster: Callable[..., LocalCluster]
) -> None:
    job = CountingJob(cluster(workers=2, ps=2), strategy=strategy, examples=400)
    x, labels = numbered(job.examples)

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for begin in range(0, job.examples, job.batch_size):
            part = slice(begin, begin + job.batch_size)
            yield x[part], labels[part]

    job.model.fit(batches(), epochs=1, verbose=0)
    assert set(job.visits.counts()) == {1}


# A quicker death in rounds is in test_synchronous.py; who takes its batches, in
# tests/unit/one_process/test_requests_of_fit.py.
@pytest.mark.conformance
def test_a_worker_that_dies_leaves_its_batches_to_others(
    strategy: tfps.ParameterServerStrategy, cluster: Callable[..., LocalCluster]
) -> None:
    job = CountingJob(cluster(workers=2, ps=2), strategy=strategy)
    before, other = job.updates(), strategy.stats().versions[0]
    killer = KillWorker(job, restart=True)
    job.fit(killer, epochs=500)
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert killer.wrong_epochs == {}
    counts = [now - then for now, then in zip(job.updates(), before, strict=True)]
    first, second = strategy.stats().versions
    assert first == second
    # Tickets that one server had counted before the death are repeated, and add nothing there.
    assert first - other - 3 <= min(counts)
    assert max(counts) <= first - other
    while not all(strategy.alive_workers()):
        time.sleep(0.1)  # TensorFlow crashes when a process connects anew in the meantime
