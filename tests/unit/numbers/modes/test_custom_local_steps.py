"""Scheduled functions that take local steps: the numbers of one process, and of averaged ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.testing import InProcessCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

LOCAL = "CPU:0"
BATCH, PERIOD = 8, 4
# Calls of optimizers in each function: periods of 4 2, 4 4 3, 1, and 4 4 calls.
CALLS = [6, 11, 1, 8]
EXCHANGES = sum(-(-calls // PERIOD) for calls in CALLS)
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(sum(CALLS), BATCH, 6)).astype("float32")


@pytest.fixture(scope="module")
def alone(cluster: Callable[..., InProcessCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    """One worker."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(PERIOD),
    )
    yield strategy
    strategy.close()


class Training:
    """A model, its optimizers, and a function that takes several steps.

    Args:
        make: returns the optimizers; of two the second one takes every third step.
        clips: the function assigns weights itself, after each step.
    """

    def __init__(self, make: Callable[[], list[Any]], *, clips: bool = False) -> None:
        keras.utils.set_random_seed(1)
        self.model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(3),
            ]
        )
        self.optimizers, self.clips = make(), clips
        for optimizer in self.optimizers:
            optimizer.build(self.model.trainable_variables)

    def _step(self, rows: tf.Tensor, optimizer: Any) -> tf.Tensor:
        weights = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(rows, training=True) - rows[:, :3]))
        optimizer.apply(tape.gradient(loss, weights), weights)
        if self.clips:
            for weight in weights:
                weight.assign(tf.clip_by_value(weight, -0.3, 0.3))
        return loss

    def steps(self, x: tf.Tensor) -> tf.Tensor:
        """Loops and branches, as AutoGraph converts them."""
        losses = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=[])
        for number in tf.range(tf.shape(x)[0]):
            if number % 3 == 2:
                loss = self._step(x[number], self.optimizers[-1])
            else:
                loss = self._step(x[number], self.optimizers[0])
            losses = losses.write(number, loss)
        return losses.stack()


def _decaying() -> list[Any]:
    schedule = keras.optimizers.schedules.CosineDecay(0.05, 20)
    return [keras.optimizers.AdamW(schedule, weight_decay=0.01, global_clipnorm=0.5)]


ONE_PROCESS: dict[str, tuple[Callable[[], list[Any]], bool]] = {
    "sgd": (lambda: [keras.optimizers.SGD(0.1, momentum=0.9)], False),
    "adam, assigned weights": (lambda: [keras.optimizers.Adam(0.05)], True),
    "schedule, decay, clipping": (_decaying, False),
    "two optimizers": (lambda: [keras.optimizers.Adam(0.05), keras.optimizers.SGD(0.1)], False),
    "loss scale": (
        lambda: [
            keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.05), initial_scale=8.0)
        ],
        False,
    ),
}


def _parts() -> list[np.ndarray]:
    return np.split(X, np.cumsum(CALLS)[:-1])


@pytest.mark.parametrize("case", ONE_PROCESS)
def test_one_worker_is_one_process(alone: tfps.ParameterServerStrategy, case: str) -> None:
    make, clips = ONE_PROCESS[case]
    with alone.scope():
        ours = Training(make, clips=clips)
    first, before = ours.model.get_weights(), alone.stats()
    # With rows of any number there is one trace, and slots stay on the worker between functions.
    step = tf.function(ours.steps, input_signature=[tf.TensorSpec([None, BATCH, 6])])
    coordinator = tfps.ClusterCoordinator(alone)
    losses = [coordinator.schedule(step, args=(tf.constant(part),)) for part in _parts()]
    coordinator.join()
    after = alone.stats()
    with tf.device(LOCAL):
        reference = Training(make, clips=clips)
        reference.model.set_weights(first)
        expected = [reference.steps(tf.constant(part)).numpy() for part in _parts()]
    np.testing.assert_allclose(
        np.concatenate([loss.fetch() for loss in losses]), np.concatenate(expected), rtol=1e-4
    )
    for weight, other in zip(ours.model.get_weights(), reference.model.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=2e-6)
    for optimizer, other in zip(ours.optimizers, reference.optimizers, strict=True):
        assert int(optimizer.iterations) == int(other.iterations)
    assert after.updates_applied - before.updates_applied == EXCHANGES


def test_fit_and_scheduled_functions_share_slots(alone: tfps.ParameterServerStrategy) -> None:
    """Adam continues from the slots that the other has left on the worker."""
    x = X[:8].reshape(-1, 6)
    with alone.scope():
        ours = Training(lambda: [keras.optimizers.Adam(0.05)])
        ours.model.compile(ours.optimizers[0], "mse")
    step = tf.function(ours.steps)
    coordinator = tfps.ClusterCoordinator(alone)
    first = ours.model.get_weights()
    with tf.device(LOCAL):
        reference = Training(lambda: [keras.optimizers.Adam(0.05)])
        reference.model.compile(reference.optimizers[0], "mse")
        reference.model.set_weights(first)
    for _ in range(2):
        ours.model.fit(x, x[:, :3], batch_size=BATCH, shuffle=False, verbose=0)
        coordinator.schedule(step, args=(tf.constant(X[:6]),))
        coordinator.join()
        with tf.device(LOCAL):
            reference.model.fit(x, x[:, :3], batch_size=BATCH, shuffle=False, verbose=0)
            reference.steps(tf.constant(X[:6]))
    for weight, other in zip(ours.model.get_weights(), reference.model.get_weights(), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=2e-6)
    assert int(ours.optimizers[0].iterations) == 2 * (8 + 6)


class Growth:
    """Two weights, one on each server, that grow by one with each step of a worker."""

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        self.coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            self.weights = [keras.Variable(np.zeros([3], "float32"), name=n) for n in "ab"]
            self.optimizer = keras.optimizers.SGD(-1.0)
            self.optimizer.build(self.weights)
        self.step = tf.function(self._step)

    def _step(self, count: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(count):
            self.optimizer.apply([tf.ones([3]), tf.ones([3])], self.weights)
        return self.weights[0] + 0.0

    def run(self, count: int) -> np.ndarray:
        """Let some worker take steps; return the weight as it has it then."""
        seen = self.coordinator.schedule(self.step, args=(tf.constant(count),))
        return np.asarray(seen.fetch())


def test_elastic_averaging(cluster: Callable[..., InProcessCluster]) -> None:
    """The worker's x and the center, by hand; each function begins with the center."""
    elasticity = 0.25
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(PERIOD, elasticity=elasticity),
    )
    growth, center = Growth(strategy), 0.0
    for _ in range(2):
        mine = center
        for _ in range(3):
            mine += PERIOD
            closer = elasticity * (mine - center)
            mine, center = mine - closer, center + closer
        np.testing.assert_allclose(growth.run(3 * PERIOD), 3 * [mine], rtol=1e-6)
        for weight in growth.weights:
            np.testing.assert_allclose(weight.numpy(), 3 * [center], rtol=1e-6)
    strategy.close()


def test_a_difference_is_one_of_so_many(cluster: Callable[..., InProcessCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(2),
    )
    growth = Growth(strategy)
    # Of 5 steps the worker sends 2, 2 and 1, and goes on with what the servers make of them.
    np.testing.assert_allclose(growth.run(5), 3 * [1 + 1 + 1])
    for weight in growth.weights:
        np.testing.assert_allclose(weight.numpy(), 3 * [5 / 2])
    assert int(growth.optimizer.iterations) == 5
    stats = strategy.stats()
    assert stats.versions == (3, 3)
    growth.run(6)
    assert strategy.stats().bytes_pushed == 2 * stats.bytes_pushed  # the last period was shorter
    strategy.close()
