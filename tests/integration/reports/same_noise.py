"""Noise of tf.random in a model after set_random_seed: each batch has its own on all workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

N = 48


class ExampleTable(keras.metrics.Metric):
    """A metric that keeps the noise of each example."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.noise = self.add_variable((N,), "zeros")

    def update_state(self, number: Any, noise: Any, sample_weight: Any = None) -> None:
        self.noise.assign_add(tf.one_hot(tf.cast(number[0, 0], tf.int32), N) * noise[0, 0])

    def result(self) -> Any:
        return self.noise + 0.0


class Noise(keras.layers.Layer):
    """A layer whose outputs are noise."""

    def call(self, x: Any) -> Any:
        return 0 * x + tf.random.normal(tf.shape(x))


def noise(
    scope: Callable[[], contextlib.AbstractContextManager[Any]], *, is_seeded: bool = True
) -> Any:
    """Return the noise that each example of an epoch meets."""
    if is_seeded:
        keras.utils.set_random_seed(1)
    with scope():
        inputs = keras.Input((1,))
        model = keras.Model(inputs, Noise()(inputs) + 0 * keras.layers.Dense(1)(inputs))
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[ExampleTable()], jit_compile=False)
    x = np.arange(N, dtype="float32").reshape(-1, 1)
    history = model.fit(0 * x, x, batch_size=1, shuffle=False, verbose=0).history
    return np.asarray(history["seen"][0])


def compare(report: Report) -> None:
    """Compare the noise of one worker, and count the different one of several."""
    here = noise(contextlib.nullcontext)
    for workers in (1, 2, 4):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            for mode in ("asynchronous", "synchronous"):
                for is_seeded in (True, False):
                    strategy = tfps.ParameterServerStrategy(
                        cluster.cluster_resolver, consistency=mode
                    )
                    found = noise(strategy.scope, is_seeded=is_seeded)
                    strategy.close()
                    count = len(np.unique(found))
                    equal = workers > 1 or not is_seeded or bool(np.array_equal(found, here))
                    report.line(
                        f"{workers} workers, {mode}, set_random_seed {is_seeded}",
                        expected=N,
                        got=count,
                        equal=equal and count == N,
                    )
