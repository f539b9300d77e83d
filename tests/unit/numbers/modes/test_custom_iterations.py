"""Counts, rates and slots that a scheduled function reads after `apply` are new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

CALLS, STEPS = 2, 3
MODES = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(2),
    "synchronous": tfps.Synchronous(),
    "local steps": tfps.LocalSteps(3),
    "local rounds": tfps.LocalSteps(3, synchronous_periods=True),
}


class Job:
    """Weights, and optimizers whose counts, rates and slots decide what a step does."""

    def __init__(self) -> None:
        self.weights = [keras.Variable(np.ones([3], "float32"), name=name) for name in "ab"]
        schedule = keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 1.0)
        self.one = keras.optimizers.SGD(schedule, momentum=0.5)
        self.other = keras.optimizers.Adam(0.1, gradient_accumulation_steps=2)
        for optimizer in (self.one, self.other):
            optimizer.build(self.weights)

    def step(self) -> tf.Tensor:
        """Every second update of one optimizer is followed by one of the other."""
        self.one.apply([tf.identity(weight) for weight in self.weights], self.weights)
        if self.one.iterations % 2 == 0:
            self.other.apply([0.5 * weight for weight in self.weights], self.weights)
        if self.other.iterations % 2 == 1:
            self.weights[0].assign(0.5 * self.weights[0])
        return tf.stack(
            [
                tf.cast(self.one.iterations, tf.float32),
                tf.cast(self.other.iterations, tf.float32),
                tf.convert_to_tensor(self.one.learning_rate),
                tf.reduce_sum(self.one.momentums[0]),
                tf.reduce_sum(self.other._accumulated_gradients[1]),
                tf.reduce_sum(self.weights[0]),
            ]
        )

    def looped(self) -> tf.Tensor:
        """Steps in a loop of the graph, as AutoGraph converts it."""
        seen = tf.TensorArray(tf.float32, STEPS, element_shape=[6])
        for number in tf.range(STEPS):
            seen = seen.write(number, self.step())
        return seen.stack()

    def unrolled(self) -> tf.Tensor:
        """Steps that are traced one after the other."""
        return tf.stack([self.step() for _ in range(STEPS)])


def _strategy(cluster: Callable[..., InProcessCluster], mode: Any) -> Any:
    resolver = cluster(workers=1, ps=2).cluster_resolver
    return tfps.ParameterServerStrategy(resolver, placement="round_robin", consistency=mode)


def _results(make: Callable[[], Any], strategy: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """Call a function a few times: the numbers that it sees, and the weights after it."""
    if strategy is None:
        with tf.device("CPU:0"):
            job, function = make()
            seen = [function().numpy() for _ in range(CALLS)]
    else:
        with strategy.scope():
            job, function = make()
        coordinator = tfps.ClusterCoordinator(strategy)
        seen = [coordinator.schedule(function).fetch() for _ in range(CALLS)]
    weights = [weight.numpy() for weight in job.weights]
    if strategy is not None:
        strategy.close()
    return np.stack(seen), weights


@pytest.mark.rare
@pytest.mark.quick("looped-asynchronous")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["looped", "unrolled"])
def test_one_worker_sees_what_one_process_sees(
    cluster: Callable[..., InProcessCluster], mode: str, way: str
) -> None:
    def make() -> tuple[Job, Any]:
        job = Job()
        return job, tf.function(getattr(job, way))

    expected, weights = _results(make, None)
    found, own = _results(make, _strategy(cluster, MODES[mode]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own, weights, rtol=1e-5, atol=1e-6)


@pytest.mark.rare
def test_a_function_that_assigns_the_count_goes_on_from_there(
    cluster: Callable[..., InProcessCluster],
) -> None:
    class Restarts(Job):
        """A schedule that begins anew after every third update."""

        def step(self) -> tf.Tensor:
            self.one.apply([tf.identity(weight) for weight in self.weights], self.weights)
            if self.one.iterations == 3:
                self.one.iterations.assign(0)
            return tf.cast(self.one.iterations, tf.float32) * tf.ones([6])

    def make() -> tuple[Job, Any]:
        job = Restarts()
        return job, tf.function(job.looped)

    expected, weights = _results(make, None)
    assert set(expected.ravel()) == {0, 1, 2}  # the third update begins anew
    found, own = _results(make, _strategy(cluster, MODES["asynchronous"]))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(own, weights, rtol=1e-5, atol=1e-6)


class TwoCalls(keras.Model):
    """A step of `fit` that reads one optimizer's count before it calls the other."""

    def __init__(self) -> None:
        super().__init__()
        self.w = self.add_weight(shape=(3,), initializer="ones", name="w")
        self.other = keras.optimizers.SGD(0.2)
        self.other.build([self.w])
        self.built = True

    def train_step(self, data: Any) -> dict[str, Any]:
        self.optimizer.apply([tf.identity(self.w)], [self.w])
        seen = self.optimizer.iterations
        self.other.apply([self.w / tf.cast(1 + seen, tf.float32)], [self.w])
        return {"seen": seen}


@pytest.mark.repeats
def test_a_call_in_the_middle_of_a_step_of_fit(cluster: Callable[..., InProcessCluster]) -> None:
    def trained(scope: Any) -> tuple[np.ndarray, list[float]]:
        with scope:
            model = TwoCalls()
            model.compile(keras.optimizers.SGD(0.1))
            model.optimizer.build([model.w])
        history = model.fit(np.ones((5, 1)), batch_size=1, verbose=0)
        return model.w.numpy(), history.history["seen"]

    expected, last = trained(tf.device("CPU:0"))
    strategy = _strategy(cluster, MODES["asynchronous"])
    weights, seen = trained(strategy.scope())
    strategy.close()
    assert last == seen == [5]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
