"""A model whose step computes nothing: what is left of a step is the exchange and the ledger.

And one pass of Adam by itself: an update of as many parameters cannot be faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.usage import EpochClock, clock_callback


class StillModel(keras.Model):
    """Sends its weights as their own gradients, and counts its steps in a metric."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        for shape in shapes:
            self.add_weight(shape=shape, initializer="glorot_uniform")
        self.mean = keras.metrics.Mean(name="mean")
        self.built = True

    def call(self, inputs: Any) -> Any:
        return inputs

    def train_step(self, data: Any) -> Any:
        weights = self.trainable_variables
        self.optimizer.apply([keras.ops.convert_to_tensor(weight) for weight in weights], weights)
        self.mean.update_state(1.0)
        return {"mean": self.mean.result()}


class KeepsWeights(keras.optimizers.Optimizer):
    """Counts an update and changes nothing."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Leave the variable as it is."""


def still_fit(
    strategy: Any, shapes: Sequence[tuple[int, ...]], *, updates: bool, steps_per_execution: int
) -> Callable[[int, EpochClock], None]:
    """Return a function that fits about `steps` steps, in whole executions, and times them.

    The server runs Adam, or keeps its weights. In an execution of several steps the chief's part of
    each, Keras's progress and callbacks, is small: it is not to be measured.
    """
    with strategy.scope():
        model = StillModel(shapes)
        optimizer = keras.optimizers.Adam() if updates else KeepsWeights(learning_rate=0.0)
        model.compile(optimizer, steps_per_execution=steps_per_execution)

    def run(wanted: int, clock: EpochClock) -> None:
        steps = steps_per_execution * math.ceil(wanted / steps_per_execution)
        x = np.zeros([steps, 1], np.float32)
        model.fit(x, batch_size=1, verbose=0, callbacks=[clock_callback(keras, clock, steps)])

    return run


def adam_pass(parameters: int) -> Callable[[int, EpochClock], None]:
    """Return a function that runs TensorFlow's kernel of Adam in this process, on all cores."""
    value, first, second = (tf.Variable(tf.zeros([parameters])) for _ in range(3))
    handles = {"var": value.handle, "m": first.handle, "v": second.handle}
    numbers = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
    numbers |= {"beta1_power": 0.9, "beta2_power": 0.999}
    gradient = tf.fill([parameters], 1e-3)

    def run(count: int, clock: EpochClock) -> None:
        clock.begin()
        for _ in range(count):
            tf.raw_ops.ResourceApplyAdam(grad=gradient, **handles, **numbers)
        clock.end(count)

    return run
