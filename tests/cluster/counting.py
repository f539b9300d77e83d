"""Models whose numbers say how often something happened: visits of examples, applied updates."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import tfps


class Visits(keras.metrics.Metric):
    """Counts how often each example was seen since the last reset.

    A label is a pair (class, number of the example).
    """

    def __init__(self, examples: int) -> None:
        super().__init__(name="visits")
        self.examples = examples
        self.seen = self.add_variable((examples,), initializer="zeros", name="seen")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        numbers = keras.ops.cast(y_true[:, 1], "int32")
        self.seen.assign_add(keras.ops.sum(keras.ops.one_hot(numbers, self.examples), 0))

    def result(self) -> Any:
        return keras.ops.max(self.seen)

    def reset_state(self) -> None:
        self.seen.assign(keras.ops.zeros_like(self.seen))

    def counts(self) -> list[int]:
        """Return the visits by example."""
        return self.seen.numpy().astype(int).tolist()


class UnitGradients(keras.layers.Layer):
    """Two weights that grow by one with each update of SGD at rate -1, so they count updates.

    The output of every example is their sum: the mean of the outputs has a gradient of 1 in each.
    """

    def build(self, input_shape: Any) -> None:
        self.first = self.add_weight(shape=(), initializer="zeros", name="first")
        self.second = self.add_weight(shape=(), initializer="zeros", name="second")

    def call(self, inputs: Any) -> Any:
        return 0.0 * inputs[:, :1] + self.first + self.second


def visit_counter(strategy: tfps.ParameterServerStrategy, *, examples: int) -> keras.Model:
    """Three classes from four features; its metric counts the visits of each example."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.1), cross_entropy, metrics=[Visits(examples)])
    return model


def mean_output(y_true: Any, y_pred: Any) -> Any:
    """Return the output itself as a loss."""
    return keras.ops.mean(y_pred, axis=-1)


def cross_entropy(y_true: Any, y_pred: Any) -> Any:
    """Return the cross-entropy of labels that are pairs (class, number of the example)."""
    return keras.losses.sparse_categorical_crossentropy(y_true[:, 0], y_pred, from_logits=True)


def numbered(examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with four features, and labels that are pairs (class, number of the example)."""
    x = np.random.default_rng(0).normal(size=(examples, 4)).astype("float32")
    return x, np.stack([x[:, :3].argmax(1), np.arange(examples)], 1)
