"""Models without an Input that only their own step, or their batches, can build.

Ragged and sparse features, batches that are no pair, further arguments of `call`, inputs that the
step makes, a layer that only training uses: refused with the error of a call that no user makes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

ROWS, BATCH, PLACES = 64, 8, 4
X = np.random.RandomState(0).rand(ROWS, 4).astype("float32")
Y = X.sum(1, keepdims=True)

Scope = Callable[[], AbstractContextManager[object]]


class Own(keras.Model):
    """Trains by its own step."""

    def __init__(self, errors: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.errors, self.out = errors, keras.layers.Dense(1)

    def call(self, x: Any, scale: Any = 1.0) -> Any:
        return self.out(x) * scale

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.errors(self, data) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"step_loss": loss}


class Scaled(Own):
    """Cannot be called with one argument."""

    def call(self, x: Any, scale: Any) -> Any:  # type: ignore[override] # no default
        return self.out(x) * scale


class Mean(keras.Model):
    """Takes the mean of the rows that ragged or sparse ids look up."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = keras.layers.Embedding(20, 4), keras.layers.Dense(1)

    def call(self, ids: Any) -> Any:
        dense = ids.to_tensor() if isinstance(ids, tf.RaggedTensor) else tf.sparse.to_dense(ids)
        return self.out(tf.reduce_mean(self.table(dense), axis=1))


class Auxiliary(keras.Model):
    """Has a layer that only training uses."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.other = keras.layers.Dense(1), keras.layers.Dense(1)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.add_loss(tf.reduce_mean(self.other(x) ** 2))
        return self.out(x)


IDS = tf.ragged.constant([[i % 20] * (i % 5 + 1) for i in range(ROWS)], dtype=tf.int32)

CASES: dict[str, tuple[Callable[[], keras.Model], Any]] = {
    "a dict": (lambda: Own(lambda m, d: m(d["x"]) - d["y"]), {"x": X, "y": Y}),
    "a tuple of four": (lambda: Own(lambda m, d: m(d[0]) - d[1] * d[2] / d[3]), (X, Y, Y, Y)),
    "call(x, scale)": (lambda: Scaled(lambda m, d: m(d[0], scale=2.0) - d[1]), (X, Y)),
    "inputs made in the step": (
        lambda: Own(lambda m, d: m(tf.one_hot(d[0], 4)) - d[1]),
        (np.arange(ROWS) % 4, Y),
    ),
    "ragged ids": (Mean, (IDS, Y)),
    "sparse ids": (Mean, (IDS.to_sparse(), Y)),
    "a layer of training": (Auxiliary, (X, Y)),
}


def _train(case: str, scope: Scope) -> tuple[float, int]:
    make, arrays = CASES[case]
    keras.utils.set_random_seed(1)
    with scope():
        model = make()
        model.compile("sgd", "mse")
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH)
    (losses,) = model.fit(batches, verbose=0).history.values()
    return round(losses[-1], PLACES), int(model.optimizer.iterations.numpy())


def compare(report: Report) -> None:
    """Compare the loss with one worker, and the updates with two."""
    expected = {case: _train(case, contextlib.nullcontext) for case in CASES}
    for workers, mode in ((1, "asynchronous"), (1, "synchronous"), (2, "asynchronous")):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
            for case, numbers in expected.items():
                got = _train(case, strategy.scope)
                report.line(
                    f"{workers} workers, {mode}, {case}: loss and updates",
                    expected=numbers,
                    got=got,
                    equal=got == numbers if workers == 1 else got[1] == numbers[1],
                )
            strategy.close()
