"""A step that returns numbers, texts, None, ragged and sparse tensors, or makes a `tf.Variable`.

These raised an `AttributeError`, or were not in the logs.
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

X, Y = np.ones((32, 4), "float32"), np.ones((32, 1), "float32")
ROWS = tf.ragged.constant([[1], [2, 3]])
VALUES: tuple[Any, ...] = (0.5, 3, True, np.float32(2), [1.0, 2.0], "phase 1", None, {"a": 1.5})
VALUES += (ROWS, ROWS.to_sparse(), (1.0, 2))

Scope = Callable[[], AbstractContextManager[object]]


class Returning(keras.Model):
    """Returns a further value, and the sum of a variable that its first step makes."""

    further: Any = None
    rows: tf.Variable | None = None

    def train_step(self, data: Any) -> dict[str, Any]:
        if self.rows is None:
            self.rows = tf.Variable(0.0, trainable=False)
        self.rows.assign_add(tf.cast(tf.shape(data[0])[0], tf.float32))
        return {**super().train_step(data), "further": self.further}

    def test_step(self, data: Any) -> dict[str, Any]:
        return {**super().test_step(data), "further": self.further}


def _logs(value: Any, scope: Scope) -> tuple[Any, Any, Any, float]:
    with scope():
        inputs = keras.Input((4,))
        model = Returning(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse")
    model.further = value
    trained = model.fit(X, Y, batch_size=8, verbose=0).history
    tested = model.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)
    rows = model.rows
    assert rows is not None
    counted = float(rows.numpy())
    once = model.train_on_batch(X[:8], Y[:8], return_dict=True)
    del trained["loss"], tested["loss"], once["loss"]
    return trained, tested, once, counted


def compare(report: Report) -> None:
    expected = [_logs(value, contextlib.nullcontext) for value in VALUES]
    for workers, mode in ((1, "asynchronous"), (2, "asynchronous"), (2, "synchronous")):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
            for value, logs in zip(VALUES, expected, strict=True):
                got = _logs(value, strategy.scope)
                report.line(
                    f"{workers} workers, {mode}, {value!r}: logs of fit, evaluate, one batch; rows",
                    expected=logs,
                    got=got,
                    equal=repr(got) == repr(logs),  # some are arrays
                )
            strategy.close()
