"""Layers without gradients are told of, and their servers count updates: one holds the counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps

WITHOUT = r"^Gradients do not exist for variables \['[^']+/kernel'\] when minimizing the loss"


class HalfIdle(keras.Model):
    """The first of its layers takes no part in training."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.used = (keras.layers.Dense(3, use_bias=False) for _ in range(2))

    def build(self, shape: Any) -> None:
        self.idle.build(shape)
        self.used.build(shape)
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.used(inputs) if training else self.idle(inputs) + self.used(inputs)


def _trained(optimizer: keras.optimizers.Optimizer) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = HalfIdle()
    model.build((None, 4))
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    data = np.random.default_rng(0).random((64, 7)).astype(np.float32)
    model.fit(data[:, :4], data[:, 4:], batch_size=8, shuffle=False, verbose=0)
    return model


@pytest.mark.rare
@pytest.mark.parametrize(
    "optimizer",
    [keras.optimizers.Adam, lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())],
    ids=["Adam", "LossScaleOptimizer"],
)
@pytest.mark.parametrize("mode", [tfps.Asynchronous(), tfps.Synchronous()], ids=str)
def test_updates_count_where_no_gradient_is(
    mode: Any, optimizer: Callable[[], keras.optimizers.Optimizer]
) -> None:
    with tfps.testing.InProcessCluster(workers=1, ps=2) as cluster:
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, placement="round_robin", consistency=mode
        )
        with strategy.scope(), pytest.warns(UserWarning, match=WITHOUT):
            model = _trained(optimizer())
        idle, used = (layer.kernel.value.device for layer in (model.idle, model.used))
        assert model.optimizer.iterations.value.device == idle != used
        assert int(model.optimizer.iterations) == 8
        weights = model.get_weights()
        strategy.close()
    with pytest.warns(UserWarning, match=WITHOUT):  # Keras's own
        expected = _trained(optimizer()).get_weights()
    for found, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
