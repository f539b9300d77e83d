"""A model all of whose numbers are the number of its updates, so a mixture of versions shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from tests.cluster.counting import mean_output

# On each server more than XLA is worth its while for, and something small.
SHAPES = ((300, 200), (500, 80), (7,), (2000,))


class Counters(keras.layers.Layer):
    """Weights that each grow by one with an update of SGD at rate -1."""

    def build(self, input_shape: Any) -> None:
        self.counts = [
            self.add_weight(shape=shape, initializer="zeros", name=f"counts_{n}")
            for n, shape in enumerate(SHAPES)
        ]

    def call(self, inputs: Any) -> Any:
        return 0.0 * inputs[:, :1] + sum(keras.ops.sum(count) for count in self.counts)


def counting_model(*, slots: bool = True) -> keras.Model:
    """Its optimizer's slots are copies of the weights; without slots, XLA compiles its update."""
    model = keras.Sequential([keras.Input((1,)), Counters()])
    optimizer = keras.optimizers.SGD(-1.0, use_ema=slots, ema_momentum=0.0)
    model.compile(optimizer, mean_output)
    return model


def count_of(arrays: Iterable[np.ndarray[Any, Any]]) -> int:
    """The one number that all arrays consist of.

    Raises:
        AssertionError: they hold several.
    """
    (value,) = {float(value) for array in arrays for value in np.unique(array)}
    return int(value)


def updates_of(model: keras.Model) -> int:
    """How many updates the model has seen: weights, slots and the optimizer agree."""
    optimizer = [v for v in model.optimizer.variables if v is not model.optimizer.learning_rate]
    named = [v for v in optimizer if "learning_rate" not in v.path]
    return count_of(np.asarray(v.numpy()) for v in [*model.variables, *named])
