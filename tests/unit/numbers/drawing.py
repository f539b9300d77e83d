"""Programs that draw random numbers, under a strategy and in one process, and what they draw."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps

WIDTH = 8
STEPS_PER_FUNCTION = 2


class Steps:
    """A function of two steps: each draws noise from two generators, and calls an optimizer.

    Args:
        strategy: None for one process.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy | None) -> None:
        keras.utils.set_random_seed(1)
        self._strategy = strategy
        with strategy.scope() if strategy is not None else contextlib.nullcontext():
            self.layers = [keras.layers.GaussianNoise(1.0, seed=7), keras.layers.Dropout(0.5)]
            self.model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1)])
            self.optimizer = keras.optimizers.SGD(0.01)
            self.optimizer.build(self.model.trainable_variables)
        self.function = tf.function(self._steps)

    def _steps(self) -> tf.Tensor:
        return tf.stack([self._step() for _ in range(STEPS_PER_FUNCTION)])

    def _step(self) -> tf.Tensor:
        noisy = tf.ones((1, WIDTH))
        for layer in self.layers:
            noisy = layer(noisy, training=True)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.model(noisy) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return noisy[0]

    def run(self, functions: int) -> Any:
        """Run the function so often, and return what was drawn: float32 [steps, width]."""
        if self._strategy is None:
            drawn = [self.function().numpy() for _ in range(functions)]
        else:
            coordinator = tfps.ClusterCoordinator(self._strategy)
            results = [coordinator.schedule(self.function) for _ in range(functions)]
            coordinator.join()
            drawn = [result.fetch() for result in results]
        return np.concatenate(drawn)

    @property
    def generators(self) -> list[Any]:
        """The states of the generators: seed, and count of draws."""
        return [layer.seed_generator.state for layer in self.layers]

    @property
    def states(self) -> list[list[int]]:
        """The seeds and counts that the generators hold."""
        return [state.numpy().tolist() for state in self.generators]


def distinct(drawn: Any) -> int:
    """How many of the rows differ from all others."""
    return len(np.unique(drawn, axis=0))
