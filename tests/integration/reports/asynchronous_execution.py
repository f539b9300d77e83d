"""`tf.config.experimental.set_synchronous_execution(False)` before a model is trained.

`fit` and a loop of one's own waited for ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

X, Y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")
STEPS = 5

Scope = Callable[[], AbstractContextManager[object]]


def losses(scope: Scope) -> list[float]:
    tf.config.experimental.set_synchronous_execution(False)
    keras.utils.set_random_seed(1)
    with scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    found = model.fit(X, Y, batch_size=64, epochs=STEPS, verbose=0).history["loss"]
    tf.config.experimental.set_synchronous_execution(True)
    return [round(loss, 4) for loss in found]


def counted(strategy: tfps.ParameterServerStrategy) -> float:
    """Return what some scheduled functions have counted."""
    tf.config.experimental.set_synchronous_execution(False)
    with strategy.scope():
        count = keras.Variable(0.0, name="count")

    @tf.function
    def step(add: tf.Tensor) -> None:
        count.assign_add(add)

    for _ in range(STEPS):
        strategy.coordinator.schedule(step, (tf.constant(2.0),))
    strategy.coordinator.join()
    tf.config.experimental.set_synchronous_execution(True)
    return float(count.numpy())


def compare(report: Report) -> None:
    expected = losses(contextlib.nullcontext)
    for workers in (1, 2):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            got = losses(strategy.scope)
            report.line(f"{workers} workers, losses of fit", expected=expected, got=got)
            got_count = counted(strategy)
            report.line(
                f"{workers} workers, scheduled functions", expected=2.0 * STEPS, got=got_count
            )
            strategy.close()
