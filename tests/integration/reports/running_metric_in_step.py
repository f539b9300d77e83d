"""A `train_step` that goes by the running result of a metric: the loss is phased in.

With one worker it has the numbers of one process; several refuse it before the first step.
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
from tfps.errors import UnsupportedError

X = np.random.RandomState(0).rand(64, 4).astype("float32")
Y = X.sum(1, keepdims=True)
REFUSED = "refused"
Scope = Callable[[], contextlib.AbstractContextManager[Any]]


class PhasedIn(keras.Model):
    """The loss counts 1/8 in the first batch of an epoch, and wholly from the eighth on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.batches = keras.metrics.Sum(name="batches")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.batches]

    def train_step(self, data: Any) -> dict[str, Any]:
        self.batches.update_state(1.0)
        weight = tf.minimum(self.batches.result() / 8.0, 1.0)
        with tf.GradientTape() as tape:
            loss = weight * tf.reduce_mean((self(data[0]) - data[1]) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"batches": self.batches.result(), "weight": weight, "loss": loss}


def run(scope: Scope) -> dict[str, list[float]]:
    """Train for two epochs; return what each has logged, and the kernel."""
    keras.utils.set_random_seed(1)
    with scope():
        inputs = keras.Input((4,))
        model = PhasedIn(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd")
    history = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    numbers = {**history, "kernel": model.get_weights()[0].ravel()}
    return {name: [round(float(v), 4) for v in values] for name, values in numbers.items()}


def compare(report: Report) -> None:
    alone = run(contextlib.nullcontext)
    for workers, mode in [
        (1, tfps.Asynchronous()),
        (1, tfps.Synchronous()),
        (1, tfps.LocalSteps(4)),
        (2, tfps.Asynchronous()),
    ]:
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
            try:
                got: object = run(strategy.scope)
            except UnsupportedError:
                got = REFUSED
            expected = alone if workers == 1 else REFUSED
            report.line(f"workers={workers}, {mode!r}", expected=expected, got=got)
            strategy.close()
