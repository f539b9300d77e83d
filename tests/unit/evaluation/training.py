"""A training whose next checkpoint is written when the last one has been evaluated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

random = np.random.default_rng(1)
X = random.normal(size=(96, 6)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")
TEST = tf.data.Dataset.from_tensor_slices((X[64:], Y[64:])).batch(8)
STEPS = 4  # of one `fit`


def network(*, units: int = 8, optimizer: Any = "adam") -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(units, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(2),
        ]
    )
    compile_(model, optimizer)
    return model


def compile_(model: keras.Model, optimizer: Any = "adam") -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)


def fit(model: keras.Model) -> None:
    model.fit(X[:64], Y[:64], batch_size=64 // STEPS, verbose=0)


class Training(keras.callbacks.Callback):
    """Trains and saves whenever an evaluation has ended, and remembers both sides' numbers.

    Args:
        model: what is trained.
        save: saves it; takes the number of the checkpoint.
        last: the number of the last one.
    """

    def __init__(self, model: keras.Model, save: Callable[[int], Any], *, last: int = 2) -> None:
        super().__init__()
        self.trained = model
        self.expected: list[dict[str, float]] = []
        self.evaluated: list[dict[str, float]] = []
        self.begun: list[dict[str, Any]] = []
        self.iterations: list[int] = []
        self._save = save
        self._last = last
        self.advance()

    def advance(self) -> None:
        fit(self.trained)
        self.expected.append(self.trained.evaluate(TEST, verbose=0, return_dict=True))
        self._save(len(self.expected))

    def on_test_begin(self, logs: Any = None) -> None:
        self.begun.append(dict(logs))

    def on_test_end(self, logs: Any = None) -> None:
        self.evaluated.append(dict(logs))
        self.iterations.append(int(self.model.optimizer.iterations))
        if len(self.expected) < self._last:
            self.advance()


def saver(model: keras.Model, folder: Path, way: str) -> Callable[[int], Any]:
    """One of the ways in which users save, by name."""
    checkpoints = {
        "model and optimizer": tf.train.Checkpoint(model=model, optimizer=model.optimizer),
        "model": tf.train.Checkpoint(model=model),
        "root": tf.train.Checkpoint(model),
        "another name": tf.train.Checkpoint(step=tf.Variable(7), classifier=model),
    }
    if way in checkpoints:
        manager = tf.train.CheckpointManager(checkpoints[way], str(folder), max_to_keep=2)
        return lambda number: manager.save()
    if way == "weights":
        return lambda number: model.save_weights(folder / f"epoch-{number}.weights.h5")
    if way == "weights in place":
        return lambda number: model.save_weights(folder / "latest.weights.h5", overwrite=True)
    return lambda number: model.save(folder / f"epoch-{number}.keras")


WAYS = (
    "model and optimizer",
    "weights",
    "keras",
    "weights in place",
    # Another root of the same tree of objects.
    pytest.param("model", marks=pytest.mark.slow),
    pytest.param("root", marks=pytest.mark.slow),
    pytest.param("another name", marks=pytest.mark.slow),
)
