"""Three classes from six features, for one process and for workers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

BATCH = 8


def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(count, 6)).astype("float32")
    return x, x[:, :3].argmax(1)


def network(optimizer: Any, *layers: Any) -> keras.Model:
    """Compiled; with other layers in the middle."""
    keras.utils.set_random_seed(1)
    ends = [keras.layers.Dense(8, activation="tanh"), *layers, keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *ends])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model
