"""A model whose step computes nothing: what is left of a step is the exchange and the ledger."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from tfps.bench.usage import EpochClock
from tfps.bench.workload import MODELS

# The chief's part of a step, Keras's progress and callbacks, is not what is asked for.
STEPS_PER_EXECUTION = 50


class StillModel(keras.Model):
    """Sends its weights as their own gradients, and counts its steps in a metric."""

    def __init__(self) -> None:
        super().__init__()
        for shape in MODELS["mlp"].shapes:
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


def still_fit(strategy: Any, *, updates: bool) -> Callable[[int, EpochClock], None]:
    """What fits about so many steps, whole executions, and lets a clock see them.

    Args:
        strategy: a `tfps.ParameterServerStrategy`.
        updates: the server runs Adam; else it keeps its weights.
    """
    with strategy.scope():
        model = StillModel()
        optimizer = keras.optimizers.Adam() if updates else KeepsWeights(learning_rate=0.0)
        model.compile(optimizer, steps_per_execution=STEPS_PER_EXECUTION)

    def run(wanted: int, clock: EpochClock) -> None:
        steps = STEPS_PER_EXECUTION * math.ceil(wanted / STEPS_PER_EXECUTION)

        class Measure(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                clock.begin()

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                clock.end(steps)

        x = np.zeros([steps, 1], np.float32)
        model.fit(x, batch_size=1, verbose=0, callbacks=[Measure()])

    return run
