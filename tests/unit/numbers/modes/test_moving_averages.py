"""Moving averages and counts of a step move at Keras's pace, on whichever worker it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

STEPS, BATCH, MOMENTUM = 24, 4, 0.9
# Each batch is one of these two, whose means are apart, so that all pairs of batches are alike.
HALVES = np.array([[[1.0], [3.0], [1.0], [3.0]], [[7.0], [9.0], [7.0], [9.0]]], np.float32)

Fit = Callable[..., dict[str, Any]]


class Tracks(keras.layers.Layer):
    """Keeps averages and counts of its own, and passes its inputs on."""

    def build(self, shape: Any) -> None:
        def weight(name: str, dtype: str = "float32") -> Any:
            return self.add_weight(
                shape=(), initializer="zeros", trainable=False, name=name, dtype=dtype
            )

        self.average, self.total, self.last = (weight(n) for n in ("average", "total", "last"))
        self.in_branch = weight("in_branch")
        self.count = weight("count", "int64")

    def call(self, inputs: Any) -> Any:
        mean = tf.reduce_mean(inputs)
        self.average.assign_add((mean - self.average) * (1 - MOMENTUM))
        self.total.assign(self.total + tf.reduce_sum(inputs))
        self.last.assign(tf.reduce_max(inputs) * 0 + 5.0)
        self.count.assign_add(1)

        def move() -> tf.Tensor:
            self.in_branch.assign(MOMENTUM * self.in_branch + (1 - MOMENTUM) * mean)
            return inputs

        return tf.cond(mean > 0, move, lambda: inputs)


def make_model() -> keras.Model:
    layers = [Tracks(name="own"), keras.layers.BatchNormalization(momentum=MOMENTUM, name="norm")]
    model = keras.Sequential([keras.Input((1,)), *layers, keras.layers.Dense(1, name="dense")])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def state_of(model: keras.Model) -> dict[str, Any]:
    """All that no optimizer updates, by the name of its layer and its own."""
    return {
        "/".join(variable.path.split("/")[-2:]): variable.numpy()
        for variable in model.non_trainable_variables
        if "seed" not in variable.name
    }


def fitted(scope: Any, x: np.ndarray[Any, Any], *, batch: int = BATCH) -> dict[str, Any]:
    with scope:
        model = make_model()
    model.fit(x, x[:, :1], batch_size=batch, shuffle=False, verbose=0)
    return state_of(model)


def data(*, of_pairs: bool) -> np.ndarray[Any, Any]:
    """All batches alike; or two kinds of batches in turn."""
    halves = HALVES if of_pairs else HALVES[[0, 0]]
    return np.concatenate([halves[step % 2] for step in range(STEPS)])


@pytest.mark.quick("2-asynchronous")
@pytest.mark.parametrize(
    "mode",
    [
        tfps.Asynchronous(),
        tfps.BoundedStaleness(2),
        tfps.LocalSteps(3),
        tfps.LocalSteps(3, synchronous_periods=True),
        tfps.LocalSteps(3, elasticity=0.3),
    ],
    ids=["asynchronous", "bounded", "local", "local_rounds", "elastic"],
)
@pytest.mark.parametrize("workers", [2, 3])
def test_every_step_counts(
    cluster: Callable[..., InProcessCluster], mode: Any, workers: int
) -> None:
    """Every batch is alike, so that only the number of steps says how far averages are."""
    resolver = cluster(workers=workers, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=mode)
    x = data(of_pairs=False)
    found = fitted(strategy.scope(), x)
    strategy.close()
    with tf.device("CPU:0"):
        expected = fitted(contextlib.nullcontext(), x)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.repeats
@pytest.mark.parametrize("ps", [2, 1])
def test_a_round_is_one_move(cluster: Callable[..., InProcessCluster], ps: int) -> None:
    """Averages move as by one batch of all its examples; what batches add is added."""
    resolver = cluster(workers=2, ps=ps).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency="synchronous")
    x = data(of_pairs=True)
    found = fitted(strategy.scope(), x)
    assert strategy.stats().updates_applied == STEPS / 2
    strategy.close()
    with tf.device("CPU:0"):
        expected = fitted(contextlib.nullcontext(), x, batch=2 * BATCH)
    assert found.pop("own/count") == STEPS
    assert expected.pop("own/count") == STEPS / 2
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.repeats
def test_a_round_of_divided_averages(cluster: Callable[..., InProcessCluster]) -> None:
    """Their shards lie on several servers, the centers of a variance on others than it."""
    x = np.repeat(data(of_pairs=True), 5, 1) * np.arange(1, 6, dtype="float32")

    def fit(scope: Any, batch: int) -> list[Any]:
        with scope:
            model = keras.Sequential(
                [keras.Input((5,)), keras.layers.BatchNormalization(momentum=MOMENTUM)]
            )
            model.compile(keras.optimizers.SGD(0.01), "mse")
        model.fit(x, x, batch_size=batch, shuffle=False, verbose=0)
        return [variable.numpy() for variable in model.non_trainable_variables]

    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
        consistency="synchronous",
    )
    found = fit(strategy.scope(), BATCH)
    strategy.close()
    with tf.device("CPU:0"):
        expected = fit(contextlib.nullcontext(), 2 * BATCH)
    for ours, keras_own in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, keras_own, rtol=1e-4)


def trained_by_functions(strategy: Any, *, functions: int, steps: int) -> dict[str, Any]:
    """Each function takes some steps on batches that are all alike."""
    with strategy.scope():
        model = make_model()
        model.optimizer.build(model.trainable_variables)
    x = tf.constant(HALVES[0])

    @tf.function
    def train() -> None:
        for _ in tf.range(steps):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - x))
            weights = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, weights), weights)

    coordinator = tfps.ClusterCoordinator(strategy)
    for _ in range(functions):
        coordinator.schedule(train)
    coordinator.join()
    return state_of(model)


@pytest.mark.repeats
@pytest.mark.parametrize(
    "mode",
    [tfps.Asynchronous(), tfps.BoundedStaleness(2), tfps.LocalSteps(2)],
    ids=["asynchronous", "bounded", "local"],
)
def test_every_step_of_functions_counts(
    cluster: Callable[..., InProcessCluster], mode: Any
) -> None:
    resolver = cluster(workers=2, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=mode)
    found = trained_by_functions(strategy, functions=STEPS // 3, steps=3)
    strategy.close()
    with tf.device("CPU:0"):
        expected = fitted(contextlib.nullcontext(), data(of_pairs=False))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, err_msg=name)


@pytest.mark.repeats
def test_functions_in_rounds_share_a_move(cluster: Callable[..., InProcessCluster]) -> None:
    """Each of two moves averages by half; so they are where a round's moves would leave them."""
    resolver = cluster(workers=2, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency="synchronous")
    found = trained_by_functions(strategy, functions=STEPS, steps=1)
    strategy.close()
    mean = float(HALVES[0].mean())
    shares = 1 - (1 + MOMENTUM) / 2
    np.testing.assert_allclose(
        found["norm/moving_mean"], [mean * (1 - (1 - shares) ** STEPS)], 1e-4
    )
    assert found["own/count"] == STEPS
    np.testing.assert_allclose(found["own/total"], STEPS * HALVES[0].sum(), rtol=1e-5)


@pytest.mark.rare
def test_what_functions_of_a_round_assign_is_assigned(
    cluster: Callable[..., InProcessCluster],
) -> None:
    """An assignment that keeps nothing of the old value is no average."""
    resolver = cluster(workers=2, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency="synchronous")
    with strategy.scope():
        weight, optimizer = keras.Variable([1.0]), keras.optimizers.SGD(0.1)
        optimizer.build([weight])
        last = keras.Variable(0.0, trainable=False)

    @tf.function
    def train() -> None:
        optimizer.learning_rate.assign(0.5)
        last.assign(7.0)
        optimizer.apply([tf.ones([1])], [weight])

    coordinator = tfps.ClusterCoordinator(strategy)
    for _ in range(2):
        coordinator.schedule(train)
    coordinator.join()
    assert (float(optimizer.learning_rate), float(last)) == (0.5, 7.0)
    strategy.close()
