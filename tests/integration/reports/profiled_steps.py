"""`TensorBoard(profile_batch=)` with a dataset function whose pipeline calls `tf.py_function`.

`fit` stopped for ever at the end of the profile.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

STEPS, PROFILED = 60, (20, 40)

Scope = Callable[[], AbstractContextManager[object]]


def batches(_context: tf.distribute.InputContext) -> tf.data.Dataset:
    def example(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        value = tf.py_function(lambda x: x / 1000, [tf.cast(number, tf.float32)], tf.float32)
        value = tf.reshape(value, [1])
        return value, value

    return tf.data.Dataset.range(1000).map(example).batch(4)


def steps_done(scope: Scope, data: Any) -> int:
    """Return the updates of a profiled `fit`."""
    with scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    with tempfile.TemporaryDirectory() as folder:
        profile = keras.callbacks.TensorBoard(folder, profile_batch=PROFILED)
        model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[profile])
    return int(model.optimizer.iterations.numpy())


def compare(report: Report) -> None:
    expected = steps_done(contextlib.nullcontext, batches(tf.distribute.InputContext()))
    for workers in (1, 2):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            report.line(
                f"{workers} workers, steps of a profiled fit",
                expected=expected,
                got=steps_done(strategy.scope, batches),
            )
            strategy.close()
