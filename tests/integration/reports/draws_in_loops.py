"""A layer that draws from one generator in a loop: every number is new, as in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

N, DRAWS = 32, 4
WAYS = ("four calls", "tf.while_loop", "keras.ops.fori_loop", "tf.map_fn")


class Noise(keras.layers.Layer):
    """A layer that draws some numbers for an example.

    Args:
        way: one of `WAYS`.
    """

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.seed = way, keras.random.SeedGenerator(5)

    def build(self, shape: Any) -> None:
        self.built = True

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], DRAWS)

    def call(self, x: Any) -> Any:
        return 0 * x[:, :1] + self._drawn()[None]

    def _draw(self) -> Any:
        return keras.random.normal((), seed=self.seed)

    def _drawn(self) -> Any:
        if self.way == "four calls":
            return tf.stack([self._draw() for _ in range(DRAWS)])
        if self.way == "tf.while_loop":
            return tf.while_loop(
                lambda i, _: i < DRAWS,
                lambda i, drawn: (i + 1, drawn.write(i, self._draw())),
                (0, tf.TensorArray(tf.float32, DRAWS)),
            )[1].stack()
        if self.way == "keras.ops.fori_loop":
            return keras.ops.fori_loop(0, DRAWS, self._update, keras.ops.zeros((DRAWS,)))
        # As layers that augment image by image do.
        return tf.map_fn(lambda i: self._draw() + 0.0 * i, tf.zeros((DRAWS,)))

    def _update(self, i: Any, drawn: Any) -> Any:
        return keras.ops.slice_update(drawn, [i], keras.ops.reshape(self._draw(), (1,)))


class ExampleTable(keras.metrics.Metric):
    """A metric that keeps what each example has met."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.table = self.add_variable((N, DRAWS), "zeros")

    def update_state(self, number: Any, drawn: Any, sample_weight: Any = None) -> None:
        row = keras.ops.one_hot(keras.ops.cast(number[:1, 0], "int32"), N)
        self.table.assign_add(keras.ops.transpose(row) * drawn)

    def result(self) -> Any:
        return self.table + 0.0


def numbers(scope: Callable[[], contextlib.AbstractContextManager[Any]], way: str) -> Any:
    """Return what examples meet in an epoch: [examples, draws]."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    with scope():
        inputs = keras.Input((1,))
        model = keras.Model(inputs, Noise(way)(inputs) + 0 * keras.layers.Dense(DRAWS)(inputs))
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[ExampleTable()], jit_compile=False)
    x = np.arange(N, dtype="float32").reshape(-1, 1)
    y = np.tile(x, DRAWS)
    history = model.fit(0 * x, y, batch_size=1, shuffle=False, verbose=0).history
    return np.asarray(history["seen"][0])


def compare(report: Report) -> None:
    """Compare the numbers of one worker, and count the different ones of several."""
    here = {way: numbers(contextlib.nullcontext, way) for way in WAYS}
    for workers in (1, 2):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            for way in WAYS:
                strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
                found = numbers(strategy.scope, way)
                strategy.close()
                count = len(np.unique(np.round(found, 6)))
                equal = workers > 1 or bool(np.array_equal(found, here[way]))
                report.line(
                    f"{workers} workers, {way}, distinct numbers",
                    expected=N * DRAWS,
                    got=count,
                    equal=equal and count == N * DRAWS,
                )
