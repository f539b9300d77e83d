"""A schedule, a constraint or an optimizer that keeps a tensor or a raw variable.

The warm-up of most scripts of Transformers has `tf.cast(d_model, tf.float32)`, and was refused.
Synchronous workers have equal batches, so that a round is a step of one process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

STEPS, BATCH = 16, 8
ROWS = np.random.RandomState(0).rand(BATCH, 4).astype("float32")


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Keeps a tensor."""

    def __init__(self) -> None:
        self.width, self.steps = tf.cast(128, tf.float32), 10

    def __call__(self, step: Any) -> Any:
        step = tf.cast(step, tf.float32)
        rising = step * self.steps**-1.5
        return tf.math.rsqrt(self.width) * tf.math.minimum(tf.math.rsqrt(step + 1.0), rising)


class Follows(keras.optimizers.schedules.LearningRateSchedule):
    """Keeps a variable."""

    def __init__(self) -> None:
        self.rate = tf.Variable(0.05)

    def __call__(self, step: Any) -> Any:
        return self.rate * 1.0


class Clip(keras.constraints.Constraint):
    def __init__(self) -> None:
        self.most = tf.constant(0.3)

    def __call__(self, weights: Any) -> Any:
        return tf.clip_by_value(weights, -self.most, self.most)


SCHEDULES: dict[str, Callable[[], Any]] = {"tensor": WarmUp, "variable": Follows}


def _train(kind: str, scope: Any, *, workers: int = 1, coordinator: Any = None) -> list[float]:
    """Train for two epochs, with another rate in the second; return the last kernel."""
    keras.utils.set_random_seed(1)
    with scope:
        schedule = SCHEDULES[kind]()
        layer = keras.layers.Dense(1, kernel_constraint=Clip())
        model = keras.Sequential([keras.Input((4,)), layer])
        model.compile(keras.optimizers.SGD(schedule), "mse")
        model.optimizer.build(model.trainable_variables)
    x, y = np.tile(ROWS, (STEPS * workers, 1)), np.ones((STEPS * workers * BATCH, 1), "float32")

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(ROWS) - 1.0) ** 2)
        weights = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, weights), weights)

    for epoch in range(2):
        if kind == "variable":
            schedule.rate.assign(0.05 / (1 + epoch))
        if coordinator is None:
            model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
            continue
        for _ in range(STEPS):
            coordinator.schedule(step)
        coordinator.join()
    return [round(float(value), 4) for value in model.get_weights()[0][:, 0]]


def compare(report: Report) -> None:
    """Compare `fit` and scheduled functions, over both transports."""
    expected = {kind: _train(kind, contextlib.nullcontext()) for kind in SCHEDULES}
    for workers, mode in ((1, "asynchronous"), (2, "synchronous")):
        with tfps.LocalCluster(workers=workers, ps=2) as cluster:
            for transport in ("direct", "grpc"):
                strategy = tfps.ParameterServerStrategy(
                    cluster.cluster_resolver, consistency=mode, transport=transport
                )
                for kind, right in expected.items():
                    got = _train(kind, strategy.scope(), workers=workers)
                    name = f"{workers} workers, {mode}, {transport}, {kind}"
                    report.line(f"{name}: fit", expected=right, got=got)
                    if workers == 1:
                        coordinator = tfps.ClusterCoordinator(strategy)
                        got = _train(kind, strategy.scope(), coordinator=coordinator)
                        report.line(f"{name}: scheduled", expected=right, got=got)
                strategy.close()
