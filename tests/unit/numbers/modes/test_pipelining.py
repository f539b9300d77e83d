"""`Asynchronous(pipeline_steps=1)`: a delay of exactly one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import LOCAL
from tfps.testing import InProcessCluster

BATCH, BATCHES = 8, 12
X = np.random.default_rng(1).random((BATCH * BATCHES, 4), np.float32)
Y = np.random.default_rng(2).random((BATCH * BATCHES, 3), np.float32)


pytestmark = pytest.mark.timeout(240)


def test_every_gradient_lacks_one_update(cluster: Callable[..., InProcessCluster]) -> None:
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
    with tf.device(LOCAL):
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


class TwoOptimizers(keras.Sequential):
    """A step that reads the reply to its first push."""

    def train_step(self, data: Any) -> Any:
        super().train_step(data)
        return super().train_step(data)


@pytest.mark.rare
def test_what_cannot_be_pipelined_says_so(
    cluster: Callable[..., InProcessCluster], caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver, consistency=tfps.Asynchronous(pipeline_steps=1)
    )
    with strategy.scope():
        model = TwoOptimizers([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(X, Y, batch_size=BATCH, epochs=1, verbose=0)
    iterations = int(model.optimizer.iterations.numpy())
    strategy.close()
    assert "is not pipelined" in caplog.text
    assert iterations == 2 * BATCHES
