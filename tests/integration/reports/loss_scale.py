"""A gradient is divided by the loss scale that its own worker multiplied by.

`mixed_float16` puts a `LossScaleOptimizer` around every optimizer. Here all gradients are equal and
the rate is tiny, so the mean update depends on neither order nor staleness.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

STEPS, RATE, TOLERANCE = 32, 1e-5, 0.02
X, Y = np.ones((4 * STEPS, 4), "float32"), -1000 * np.ones((4 * STEPS, 1), "float32")
NEVER = 4000  # steps after which a scale grows


class Case(NamedTuple):
    """A way to train."""

    name: str
    growth: int | None  # steps after which the scale doubles; None: there is none
    steps: int | None = None  # in a scheduled function; None: the case uses fit
    overflows: bool = False  # the gradient of every fourth batch is not finite


CASES = (
    Case("fit, the scale grows", 4),
    Case("fit, overflows halve the scale", NEVER, overflows=True),
    Case("one step in a function, the scale grows", 4, steps=1),
    Case("8 steps in a function, the scale grows", 4, steps=8),
    Case("fit, no loss scale", None),
)
CLUSTERS: tuple[tuple[int, Any], ...] = (
    (1, "asynchronous"),
    (4, "asynchronous"),
    (2, tfps.BoundedStaleness(2)),
    (4, "synchronous"),
)


def _model(case: Case) -> Any:
    weights = keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)
    model = keras.Sequential([keras.Input((4,)), weights])
    optimizer: Any = keras.optimizers.SGD(RATE)
    if case.growth is not None:
        optimizer = keras.optimizers.LossScaleOptimizer(
            optimizer, initial_scale=1024.0, dynamic_growth_steps=case.growth
        )
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    return model


def _train(case: Case, model: Any, strategy: tfps.ParameterServerStrategy | None = None) -> float:
    """The mean update of the steps that were not skipped."""
    if case.steps is None:
        labels = Y.copy()
        if case.overflows:
            labels[0::16] = np.inf
        model.fit(X, labels, batch_size=4, shuffle=False, verbose=0)
    else:
        _train_in_functions(case.steps, model, strategy)
    updates = int(model.optimizer.iterations.numpy())
    return float(model.get_weights()[0][0, 0]) / max(updates, 1)


def _train_in_functions(
    steps: int, model: Any, strategy: tfps.ParameterServerStrategy | None
) -> None:
    optimizer, weights = model.optimizer, model.trainable_variables

    @tf.function
    def function() -> None:
        for _ in tf.range(steps):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(tf.constant(X[:4])) - tf.constant(Y[:4])) ** 2)
                loss = optimizer.scale_loss(loss)
            optimizer.apply(tape.gradient(loss, weights), weights)

    coordinator = None if strategy is None else tfps.ClusterCoordinator(strategy)
    for _ in range(STEPS // steps):
        if coordinator is None:
            function()
        else:
            coordinator.schedule(function)
    if coordinator is not None:
        coordinator.join()


def compare(report: Report) -> None:
    """Train in one process and on clusters."""
    expected = {case: _train(case, _model(case)) for case in CASES}
    for workers, mode in CLUSTERS:
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            for case in CASES:
                if mode == "synchronous" and (case.steps or case.overflows):
                    continue  # each round would have an overflow
                strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
                with strategy.scope():
                    model = _model(case)
                update = _train(case, model, strategy)
                strategy.close()
                report.line(
                    f"{workers} workers, {mode}: {case.name}: mean update",
                    expected=round(expected[case], 5),
                    got=round(update, 5),
                    equal=abs(update / expected[case] - 1) < TOLERANCE,
                )
