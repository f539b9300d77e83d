"""Values that scheduled functions only read travel again after any change to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.runtime.server import function_half
from tfps.testing import InProcessCluster

WIDE, BATCH, STEPS = 512, 4, 5
FROZEN_BYTES = 4 * (8 + 1) * WIDE
TRAINED_BYTES = 4 * (WIDE + 1) * 3
SLACK_BYTES = 2000  # counts of optimizers, and lines that are filled up
X = np.random.default_rng(0).normal(size=(STEPS, BATCH, 8)).astype("float32")

pytestmark = pytest.mark.timeout(180)


class FineTuning:
    """A model with a wide layer, which is frozen, and a loop that trains the other one."""

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        keras.utils.set_random_seed(1)
        self.strategy, self.coordinator = strategy, strategy.coordinator
        with strategy.scope():
            self.model = keras.Sequential(
                [
                    keras.Input((8,)),
                    keras.layers.Dense(WIDE, activation="relu"),
                    keras.layers.Dense(3),
                ]
            )
            self.optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
            self.model.compile("sgd", "mse")
        self.frozen = self.model.layers[0].trainable_variables
        self.trained = self.model.layers[1].trainable_variables
        self.optimizer.build([*self.frozen, *self.trained])
        self.step = self.step_on(self.trained)

        @tf.function
        def predict(x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(self.model(x))

        self.predict = predict

    def step_on(self, weights: list[Any]) -> Any:
        """A function that trains some of the weights."""

        @tf.function
        def step(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.model(x, training=True) ** 2)
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return loss

        return step

    def run(self, function: Any, batch: int = 0) -> float:
        """Schedule one function; return its result."""
        result = self.coordinator.schedule(function, args=(tf.constant(X[batch]),))
        self.coordinator.join()
        return float(result.fetch())

    def bytes_of(self, function: Any, batch: int = 0) -> int:
        """Return the bytes that come down for one function."""
        before = self.strategy.stats().bytes_pulled
        self.run(function, batch)
        return int(self.strategy.stats().bytes_pulled - before)


@pytest.fixture
def jobs(cluster: Callable[..., InProcessCluster]) -> Iterator[Callable[..., FineTuning]]:
    made = []

    def make(mode: Any = None) -> FineTuning:
        resolver = cluster(workers=1, ps=2).cluster_resolver
        made.append(tfps.ParameterServerStrategy(resolver, consistency=mode))
        return FineTuning(made[-1])

    yield make
    for strategy in made:
        strategy.close()


MODES = [tfps.Asynchronous(), tfps.BoundedStaleness(1), tfps.Synchronous(), tfps.LocalSteps(1)]


# Quicker ones, of `fit`, are in tests/unit/numbers/test_only_what_changed.py.
@pytest.mark.repeats
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_frozen_layer_travels_once(
    jobs: Callable[..., FineTuning], monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """The numbers are those of a loop that asks for everything each time, bit by bit."""
    found = []
    for least in (function_half.LEAST_UNCHANGED_BYTES, 1 << 40):
        monkeypatch.setattr(function_half, "LEAST_UNCHANGED_BYTES", least)
        job = jobs(mode)
        pulled = [job.bytes_of(job.step, number) for number in range(STEPS)]
        weights = [weight.numpy() for weight in (*job.trained, *job.frozen)]
        found.append((pulled, weights))
    (pulled, weights), (everything, expected) = found
    for weight, other in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(weight, other)
    assert pulled[0] == everything[0]
    saved = {more - less for less, more in zip(pulled[1:], everything[1:], strict=True)}
    assert saved == {FROZEN_BYTES}
    assert pulled[1] <= 2 * TRAINED_BYTES + SLACK_BYTES


@pytest.mark.repeats
def test_what_nobody_changes_is_pulled_once_by_all_functions_that_read_it(
    jobs: Callable[..., FineTuning],
) -> None:
    job = jobs()
    evaluate = tf.function(lambda x: tf.reduce_max(job.model(x)))
    assert job.bytes_of(job.predict) >= FROZEN_BYTES
    assert [job.bytes_of(each) for each in (job.predict, evaluate, job.predict)] == [0, 0, 0]
    job.run(job.step)
    expected = float(tf.reduce_sum(job.model(X[0])))
    np.testing.assert_allclose(job.run(job.predict), expected, rtol=1e-4)


def _assign(job: FineTuning) -> None:
    job.frozen[0].assign(2 * job.frozen[0])


def _not_a_number(job: FineTuning) -> None:
    job.frozen[0].assign(job.frozen[0] * float("nan"))


def _train(job: FineTuning) -> None:
    job.run(job.step_on(job.frozen))


def _fit(job: FineTuning) -> None:
    job.model.fit(X[0], np.ones([BATCH, 3], "float32"), verbose=0)


def _push(job: FineTuning) -> None:
    name = job.frozen[0].path
    values, version = job.strategy.pull([name])
    job.strategy.push({name: values[name]}, version)


@pytest.mark.slow
@pytest.mark.parametrize("change", [_assign, _not_a_number, _train, _fit, _push])
def test_whoever_changes_it_the_next_function_sees_it(
    jobs: Callable[..., FineTuning], change: Callable[[FineTuning], None]
) -> None:
    job = jobs()
    job.run(job.step)
    change(job)
    weights = [weight.numpy() for weight in job.model.weights]
    hidden = np.maximum(X[1] @ weights[0] + weights[1], 0)
    expected = np.mean((hidden @ weights[2] + weights[3]) ** 2)
    np.testing.assert_allclose(job.run(job.step, 1), expected, rtol=1e-4)
    assert job.bytes_of(job.step) <= 2 * TRAINED_BYTES + SLACK_BYTES
