"""A model with slots, moving averages and chance, and all of its numbers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import tfps

EXAMPLES, BATCH = 64, 16
STEPS = EXAMPLES // BATCH
X = np.random.default_rng(0).normal(size=(EXAMPLES, 8)).astype("float32")
Y = X[:, :3].argmax(axis=1)


def small_model(optimizer: Any = None, *, width: int = 16) -> keras.Model:
    """Compiled; Adam by default."""
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(width, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def small_model_on(strategy: tfps.ParameterServerStrategy, **options: Any) -> keras.Model:
    """Return a small model with its weights on the servers of a strategy."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        return small_model(**options)


def fit(model: keras.Model, **options: Any) -> None:
    """One epoch in the order of the examples."""
    options = {"batch_size": BATCH, "verbose": 0, "shuffle": False, **options}
    model.fit(X, Y, **options)


def state_of(model: keras.Model) -> dict[str, np.ndarray[Any, Any]]:
    """Weights, seeds and the optimizer's variables, by number."""
    variables = [*model.variables, *model.optimizer.variables]
    return {f"{n} {v.path}": np.array(v.numpy()) for n, v in enumerate(variables)}


def assert_same(found: keras.Model, expected: dict[str, Any], *, tolerance: float = 0.0) -> None:
    """A model's numbers are those that `state_of` answered for it or another one."""
    values = state_of(found).values()
    for value, (name, other) in zip(values, expected.items(), strict=True):
        np.testing.assert_allclose(value, other, atol=tolerance, rtol=0, err_msg=name)
