"""A fit of a few steps whose loss must fall."""

from __future__ import annotations

import keras
import numpy as np

import tfps

STEPS = 8


def small_fit(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    """Train a new model on the cluster of a new strategy."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.ones((32, 4), "float32")
    losses = model.fit(x, x.sum(axis=1), batch_size=8, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]
    assert strategy.stats().versions == (STEPS,)
    return model
