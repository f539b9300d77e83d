"""A scheduled function that reads `optimizer.iterations` or a scheduled rate after `apply`.

One process, `fit` of tfps, and variables of the model show the new value.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

LOOPS = ("one call", "two calls", "tf.range(3)", "every second update")
CLUSTERS: tuple[tuple[int, Any], ...] = (
    (1, "asynchronous"),
    (2, "asynchronous"),
    (1, "synchronous"),
)


def _parts() -> tuple[Any, Any]:
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones", name="dense")]
    )
    schedule = keras.optimizers.schedules.InverseTimeDecay(0.1, 1, 1.0)
    optimizer = keras.optimizers.SGD(schedule)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def _function(model: Any, optimizer: Any, loop: str) -> Any:
    """A function of steps; each tells the count, the rate and a weight after its update."""

    def one() -> tf.Tensor:
        weights = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.ones((8, 4))) ** 2)
        optimizer.apply(tape.gradient(loss, weights), weights)
        if loop == "every second update" and optimizer.iterations % 2 == 0:
            weights[0].assign(0.5 * weights[0])
        rate = tf.identity(optimizer.learning_rate)
        return tf.stack([tf.cast(optimizer.iterations.value, tf.float32), rate, weights[0][0, 0]])

    def function() -> tf.Tensor:
        if loop == "two calls":
            return tf.stack([one(), one()])
        seen = tf.TensorArray(tf.float32, 3)
        for number in tf.range(3):
            seen = seen.write(number, one())
        return seen.stack()

    return tf.function(one if loop == "one call" else function)


def compare(report: Report) -> None:
    """Schedule each kind of function twice, and call it twice in one process."""
    expected = {}
    for loop in LOOPS:
        function = _function(*_parts(), loop)
        expected[loop] = [np.array(function()) for _ in range(2)]
    for servers, mode in CLUSTERS:
        with tfps.LocalCluster(workers=1, ps=servers) as cluster:
            for loop in LOOPS:
                strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
                with strategy.scope():
                    parts = _parts()
                coordinator = tfps.ClusterCoordinator(strategy)
                function = _function(*parts, loop)
                got = [np.array(coordinator.schedule(function).fetch()) for _ in range(2)]
                strategy.close()
                report.line(
                    f"{servers} servers, {mode}: {loop}: count, rate, weight",
                    expected=np.round(expected[loop], 4).tolist(),
                    got=np.round(got, 4).tolist(),
                    equal=np.allclose(got, expected[loop]),
                )
