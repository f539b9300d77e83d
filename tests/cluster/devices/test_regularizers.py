"""Losses of regularizers count once, however many devices a worker has: Keras 19891, 15001."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLES, BATCH, EPOCHS = 40, 8, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(EXAMPLES, 6)).astype("float32")
Y = X.sum(1, keepdims=True)


@pytest.fixture(params=[1, 2, 4], ids="{} devices".format)
def strategy(
    cluster: Callable[..., LocalCluster], request: pytest.FixtureRequest
) -> Iterator[tfps.ParameterServerStrategy]:
    made = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2, logical_cpus=request.param).cluster_resolver
    )
    assert made.num_replicas_in_sync == request.param
    yield made
    made.close()


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    hidden = layers.Dense(8, "tanh", kernel_regularizer="l2", activity_regularizer="l2")
    model = keras.Sequential([keras.Input((6,)), hidden, layers.Dense(1, bias_regularizer="l2")])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)


def step_of(model: keras.Model, x: Any, y: Any, *, replicas: int) -> tf.Tensor:
    """Train for one step on a device's part of a batch, and return its part of the loss."""
    with tf.GradientTape() as tape:
        errors = tf.reduce_sum(tf.square(model(x, training=True) - y), -1)
        loss = tf.nn.compute_average_loss(errors, global_batch_size=BATCH)
        loss += tf.add_n(model.losses) / replicas
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    return loss


def assert_same(model: keras.Model, local: keras.Model) -> None:
    for one, two in zip(local.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(two, one, atol=1e-5)


def test_fit(strategy: tfps.ParameterServerStrategy) -> None:
    local = build()
    with strategy.scope():
        model = build()
    options: dict[str, Any] = {"batch_size": BATCH, "epochs": EPOCHS, "verbose": 0}
    for x, y in ((X, Y), (X[:37], Y[:37])):  # the last batch, of 5, makes unequal parts
        expected = local.fit(x, y, shuffle=False, **options).history["loss"]
        found = model.fit(x, y, shuffle=False, **options).history["loss"]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert_same(model, local)
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(local.evaluate(X, Y, verbose=0))


def test_scheduled_functions(strategy: tfps.ParameterServerStrategy) -> None:
    coordinator = tfps.ClusterCoordinator(strategy)
    local = build()
    expected = [float(step_of(local, *batch, replicas=1)) for batch in batches()]
    with strategy.scope():
        model = build()
        model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        replicas = strategy.num_replicas_in_sync
        losses = strategy.run(
            lambda batch: step_of(model, *batch, replicas=replicas), args=(next(iterator),)
        )
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    per_worker = coordinator.create_per_worker_dataset(
        lambda: strategy.experimental_distribute_dataset(batches())
    )
    iterator = iter(per_worker)
    results = [coordinator.schedule(step, args=(iterator,)) for _ in expected]
    coordinator.join()
    np.testing.assert_allclose([float(r.fetch()) for r in results], expected, rtol=1e-4)
    assert_same(model, local)
