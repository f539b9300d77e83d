"""Two weights, one on each server, that count what their servers apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tfps.optimizers import StalenessAware

BATCH = 2


class Counters(keras.Model):
    """Each step gives both weights a gradient of 1, in one optimizer call or in two.

    Args:
        calls: how many optimizer calls train the two weights.
        drop_above: of the optimizers; None: they are plain ones.
    """

    def __init__(self, *, calls: int = 1, drop_above: int | None = None) -> None:
        super().__init__()
        self.calls = calls
        self.first = self.add_weight(shape=(), initializer="zeros", name="first")
        self.second = self.add_weight(shape=(), initializer="zeros", name="second")
        self.optimizers: list[Any] = [keras.optimizers.SGD(-1.0) for _ in range(calls)]
        if drop_above is not None:
            self.optimizers = [
                StalenessAware(optimizer, "none", drop_above=drop_above)
                for optimizer in self.optimizers
            ]
        self.built = True

    def call(self, inputs: Any) -> Any:
        return 0.0 * inputs[:, :1] + self.first + self.second

    def train_step(self, data: Any) -> dict[str, Any]:
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x))
        self.update(tape.gradient(loss, [self.first.value, self.second.value]))
        return {"loss": loss}

    def update(self, gradients: Sequence[Any]) -> None:
        """Apply a gradient to each weight."""
        pairs = list(zip(gradients, [self.first, self.second], strict=True))
        share = len(pairs) // self.calls
        for number, optimizer in enumerate(self.optimizers):
            optimizer.apply_gradients(pairs[number * share : (number + 1) * share])

    def counts(self) -> list[float]:
        """The weights as they are on the servers."""
        return [float(self.first.numpy()), float(self.second.numpy())]


def counters(strategy: tfps.ParameterServerStrategy, *, calls: int = 1, **options: Any) -> Counters:
    """A compiled model in the scope of a strategy; options are those of `Counters`."""
    with strategy.scope():
        model = Counters(calls=calls, **options)
        model.compile(optimizer=model.optimizers[0], loss="mse")
        for optimizer, weight in zip(
            model.optimizers, ([model.first], [model.second]), strict=False
        ):
            optimizer.build(weight if calls > 1 else [model.first, model.second])
    return model


def fit(model: keras.Model, *, steps: int) -> keras.callbacks.History:
    data = np.zeros([BATCH * steps, 1], "float32")
    return model.fit(data, data, batch_size=BATCH, verbose=0)


def schedule(strategy: tfps.ParameterServerStrategy, model: Counters, *, steps: int) -> None:
    """Train by `steps` scheduled functions, and wait for them."""
    coordinator = strategy.coordinator
    function = step_of(model)
    for _ in range(steps):
        coordinator.schedule(function)
    coordinator.join()


def step_of(model: Counters) -> Any:
    """A function that trains both weights; one for a model."""
    if not hasattr(model, "_scheduled"):
        model._scheduled = tf.function(lambda: model.train_step((tf.zeros([BATCH, 1]), None)))
    return model._scheduled
