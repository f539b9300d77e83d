"""Variables that a step makes, or that a failed one leaves, and then another model.

The next model of the process failed with "Variable ... is already initialized", also under a new
strategy.
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

X, Y = np.random.RandomState(0).rand(64, 4).astype("float32"), np.ones((64, 1), "float32")


class Adversaries(keras.Model):
    """Two networks without an Input."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = keras.Sequential([keras.layers.Dense(4)])
        self.critic = keras.Sequential([keras.layers.Dense(1)])
        self.rates = {self.critic: keras.optimizers.Adam(), self.maker: keras.optimizers.Adam()}

    def train_step(self, real: Any) -> dict[str, Any]:
        logs = {}
        for sign, (network, optimizer) in zip((1.0, -1.0), self.rates.items(), strict=True):
            with tf.GradientTape() as tape:
                made = self.critic(self.maker(real[:, :2]))
                loss = sign * (tf.reduce_mean(made) - tf.reduce_mean(self.critic(real)))
            weights = network.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
            logs["loss"] = loss
        return logs


class Broken(keras.Model):
    """Makes weights, and then has a mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.out = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.out(x).no_such_attribute


class Doubled(keras.layers.Layer):
    """A layer whose shape Keras finds by a trace, where it also looks after earlier variables."""

    def call(self, x: Any) -> Any:
        return 2.0 * x


def _sound() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), Doubled(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def _adversaries(scope: Any, coordinator: Any) -> str:
    with scope:
        model = Adversaries()
        model.compile()
    model.fit(X, batch_size=8, verbose=0)
    return "trained"


def _scheduled(scope: Any, coordinator: Any) -> str:
    with scope:
        model = _sound()
    step = tf.function(lambda: model.train_step((X[:8], Y[:8])))
    for _ in range(8):
        if coordinator is None:
            step()
        else:
            coordinator.schedule(step)
    if coordinator is not None:
        coordinator.join()
    return f"{int(model.optimizer.iterations.numpy())} updates"


def _broken(scope: Any, coordinator: Any) -> str:
    with scope:
        model = Broken()
        model.compile("sgd", "mse")
    try:
        model.predict(X, verbose=0)
    except AttributeError:
        return "AttributeError"
    return "predicted"


CASES: dict[str, Callable[[Any, Any], str]] = {
    "networks without an Input": _adversaries,
    "a scheduled train_step": _scheduled,
    "a mistake in call": _broken,
}


def _then_another(case: str, scope: Callable[[], Any], coordinator: Any = None) -> tuple[str, str]:
    first = CASES[case](scope(), coordinator)
    with scope():
        model = _sound()
    model.fit(X, Y, batch_size=8, verbose=0)
    return first, f"then {int(model.optimizer.iterations.numpy())} updates"


def compare(report: Report) -> None:
    """Train a model after each of the cases."""
    for workers, mode in ((1, "asynchronous"), (2, "asynchronous")):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            for case in CASES:
                strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
                coordinator = tfps.ClusterCoordinator(strategy)
                report.line(
                    f"{workers} workers, {mode}: {case}",
                    expected=_then_another(case, contextlib.nullcontext),
                    got=_then_another(case, strategy.scope, coordinator),
                )
                strategy.close()
