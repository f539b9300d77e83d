"""Dropout and noise in scheduled functions: each run has a mask of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

N, WIDTH = 64, 32
MODES: dict[int, tuple[Any, ...]] = {
    1: ("asynchronous",),
    2: (tfps.LocalSteps(2), tfps.BoundedStaleness(2)),
    4: ("asynchronous", "synchronous"),
}
LAYERS: tuple[Callable[[], Any], ...] = (
    lambda: keras.layers.Dropout(0.5),
    lambda: keras.layers.GaussianNoise(1.0, seed=7),
)


def distinct_in_functions(strategy: tfps.ParameterServerStrategy, make: Callable[[], Any]) -> int:
    """Return how many different masks scheduled functions draw, of `N`."""
    with strategy.scope():
        layer = make()
        layer.build((None, WIDTH))
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step() -> tf.Tensor:
        noisy = layer(tf.ones((1, WIDTH)), training=True)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(noisy) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return noisy[0]

    coordinator = tfps.ClusterCoordinator(strategy)
    masks = [coordinator.schedule(step) for _ in range(N)]
    coordinator.join()
    return len(np.unique(np.round([mask.fetch() for mask in masks], 4), axis=0))


def distinct_in_fit(strategy: tfps.ParameterServerStrategy, make: Callable[[], Any]) -> int:
    """Return how many different masks the batches of fit meet, of `N`."""
    with strategy.scope():
        inputs = keras.Input((WIDTH,))
        frozen = keras.layers.Dense(1, kernel_initializer="random_normal", trainable=False)
        outputs = frozen(make()(inputs)) + 0 * keras.layers.Dense(1)(inputs)
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[ExampleTable()])
    x, y = np.ones((N, WIDTH), "float32"), np.arange(N, dtype="float32").reshape(-1, 1)
    history = model.fit(x, y, batch_size=1, shuffle=False, verbose=0).history
    return len(np.unique(np.round(history["seen"][0], 5)))


def compare(report: Report) -> None:
    """Compare the masks with those of one process, of which no two are alike."""
    for workers, modes in MODES.items():
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            for number, mode in enumerate(modes):
                make = LAYERS[number % len(LAYERS)]
                for run in (distinct_in_functions, distinct_in_fit):
                    strategy = tfps.ParameterServerStrategy(
                        cluster.cluster_resolver, consistency=mode
                    )
                    found = run(strategy, make)
                    strategy.close()
                    case = f"{workers} workers, {mode}, {type(make()).__name__}, {run.__name__}"
                    report.line(case, expected=N, got=found)


class ExampleTable(keras.metrics.Metric):
    """A metric that keeps what each example has met."""

    def __init__(self) -> None:
        super().__init__(name="seen")
        self.table = self.add_variable((N,), "zeros")

    def update_state(self, number: Any, value: Any, sample_weight: Any = None) -> None:
        row = keras.ops.one_hot(keras.ops.cast(number[0, 0], "int32"), N)
        self.table.assign_add(row * value[0, 0])

    def result(self) -> Any:
        return self.table + 0.0
