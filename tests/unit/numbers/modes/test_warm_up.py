"""After the first steps of a training, which workers take by themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.modes.small_network import BATCH, examples, network
from tfps.testing import OneProcess

pytestmark = pytest.mark.timeout(240)


LOCAL = "CPU:0"
STEPS = 6
WORKERS = 2


# Each of the two alone: tests/unit/one_process/test_modes.py.
@pytest.mark.slow
def test_scheduled_functions_go_on_after_a_fit(cluster: Callable[..., OneProcess]) -> None:
    """And do not warm up once more."""
    calls = 3
    x, y = examples((WORKERS * STEPS + calls) * BATCH)
    warm = WORKERS * STEPS * BATCH
    make = functools.partial(keras.optimizers.SGD, 0.1, momentum=0.9)
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=WORKERS, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.Asynchronous(warm_up_steps=STEPS),
    )
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model = network(make())

    def train(model: keras.Model, rows: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(rows, labels, model(rows, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)

    @tf.function
    def step(rows: tf.Tensor, labels: tf.Tensor) -> None:
        train(model, rows, labels)

    @tf.function
    def logits(rows: tf.Tensor) -> tf.Tensor:
        return model(rows, training=False)

    batches = [
        (tf.constant(x[i : i + BATCH]), tf.constant(y[i : i + BATCH]))
        for i in range(warm, len(x), BATCH)
    ]
    before = model.get_weights()
    seen = coordinator.schedule(logits, args=batches[0][:1]).fetch()
    np.testing.assert_allclose(seen, model(batches[0][0]), rtol=1e-5)
    model.fit(x[:warm], y[:warm], batch_size=BATCH, shuffle=False, verbose=0)
    middle = model.get_weights()
    for batch in batches:
        coordinator.schedule(step, args=batch).fetch()
    after = model.get_weights()
    iterations = int(model.optimizer.iterations)
    strategy.close()
    assert any(np.any(weight != first) for weight, first in zip(middle, before, strict=True))
    with tf.device(LOCAL):
        alone = network(make())
        alone.set_weights(middle)
        for batch in batches:
            train(alone, *batch)
    for weight, expected in zip(after, alone.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=2e-6)
    assert iterations == calls
