"""A model as it was before any step, without tracing its steps again."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


class InitialState:
    """The state of a compiled model's optimizer, and weights that depend on nothing but a seed.

    Make it in the strategy's scope: the optimizer's state is created if it is not there yet. Train
    a little before it is restored: what servers have for each worker is there from then on.

    Args:
        model: built and compiled; of dense layers.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        model.optimizer.build(model.trainable_variables)
        self._shapes = [tuple(variable.shape) for variable in model.trainable_variables]
        self._state = [keras.ops.convert_to_numpy(v) for v in model.optimizer.variables]

    def restore(self, seed: int) -> None:
        """Begin anew."""
        self._model.set_weights(initial_weights(self._shapes, seed=seed))
        for variable, value in zip(self._model.optimizer.variables, self._state, strict=True):
            variable.assign(value)
        strategy = self._model.distribute_strategy
        strategy._update_of(self._model.optimizer).forget_workers()


def initial_weights(shapes: list[tuple[int, ...]], *, seed: int) -> list[np.ndarray]:
    """Kernels as Glorot and Bengio (2010) draw them, and biases of zero."""
    generator = np.random.default_rng(seed)
    weights = []
    for shape in shapes:
        limit = np.sqrt(6 / sum(shape)) if len(shape) > 1 else 0.0
        weights.append(generator.uniform(-limit, limit, shape).astype(np.float32))
    return weights
