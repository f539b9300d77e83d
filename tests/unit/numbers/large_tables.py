"""Tables of which only the rows of a batch travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.unit.numbers.comparison import LABELS, LOCAL, densify
from tests.unit.numbers.tables import tables_model
from tfps.runtime.program.tables import LEAST_TABLE_BYTES

ROWS, WIDTH = 20_000, 16
TABLE_BYTES = 4 * ROWS * WIDTH
STEPS, BATCH = 6, 16  # of a loop of one's own
IDS = np.random.default_rng(5).integers(0, ROWS, size=(64, 5))
IDS[:, 1] = IDS[:, 0]  # the same row twice in an example
IDS[3:40, 2] = 7  # and one in many
IDS[0, 3], IDS[1, 3] = 0, ROWS - 1
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.Adam(0.01, clipnorm=0.05),
    "clipped together": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.05),
    "scaled loss": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
}


def small_tables(optimizer: Callable[[], Any] = OPTIMIZERS["adam"]) -> keras.Model:
    """Two tables, one of them looked up twice."""
    assert TABLE_BYTES >= LEAST_TABLE_BYTES
    return tables_model(optimizer, rows=ROWS, width=WIDTH)


def step_of(model: keras.Model, calls: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A step of a custom loop, with `calls` calls of the optimizer."""

    def step(ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in range(calls):  # the second computes from what the first has changed
            with tf.GradientTape() as tape:
                loss = model.compute_loss(ids, labels, model(ids, training=True))
            variables = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def batches() -> list[tuple[tf.Tensor, tf.Tensor]]:
    """The batches of the steps, in order."""
    places = [np.arange(k * BATCH, (k + 1) * BATCH) % len(IDS) for k in range(STEPS)]
    with tf.device(LOCAL):
        return [(tf.constant(IDS[rows]), tf.constant(LABELS[rows])) for rows in places]


def trained_alone(
    weights: list[np.ndarray], optimizer: Callable[[], Any], *, calls: int
) -> tuple[list[float], list[np.ndarray]]:
    """Train in one process; return the losses and the weights."""
    with tf.device(LOCAL):
        model = small_tables(optimizer)
        model.set_weights(weights)
        densify(model.optimizer)
        step = step_of(model, calls)
        losses = [float(step(*batch)) for batch in batches()]
    return losses, model.get_weights()
