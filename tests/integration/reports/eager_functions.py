"""`tf.config.run_functions_eagerly(True)`, and a dataset function that returns a made dataset.

The first failed with "Tensor.op is undefined when eager execution is enabled", the second with
"Primary device is not remote"; it is refused with what to write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report
from tfps.errors import UnsupportedError

X = np.random.RandomState(0).rand(64, 4).astype("float32")
Y, PLACES = X.sum(1, keepdims=True), 4

Scope = Callable[[], AbstractContextManager[object]]


def _train(scope: Scope) -> list[float]:
    keras.utils.set_random_seed(1)
    with scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    options: dict[str, Any] = {"batch_size": 8, "verbose": 0}
    losses = model.fit(X, Y, epochs=2, shuffle=False, **options).history["loss"]
    sums = [model.evaluate(X, Y, **options), model.predict(X, **options).sum()]
    return [round(float(number), PLACES) for number in (*losses, *sums)]


def _updates(scope: Scope, data: Any) -> int | str:
    with scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    try:
        model.fit(data, verbose=0)
    except UnsupportedError:
        return "refused"
    return int(model.optimizer.iterations.numpy())


def compare(report: Report) -> None:
    expected = _train(contextlib.nullcontext)
    before = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    with tfps.LocalCluster(workers=1, ps=1) as cluster:
        for when in ("before", "after"):
            tf.config.run_functions_eagerly(when == "before")
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            tf.config.run_functions_eagerly(True)
            got = _train(strategy.scope)
            tf.config.run_functions_eagerly(False)
            report.line(f"set {when} the strategy: losses, sums", expected=expected, got=got)
            after = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
            inputs: dict[str, tuple[Any, int | str]] = {
                "a made dataset": (after, 8),
                "a function that makes one": (
                    lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(8),
                    8,
                ),
                "a function that returns one": (lambda after=after: after, "refused"),
                "a function that returns an earlier one": (lambda: before, "refused"),
                "a function that maps one": (
                    lambda after=after: after.map(lambda x, y: (x, y)),
                    "refused",
                ),
                "such shards": (
                    tfps.ShardedDataset(lambda context, after=after: after, number=2),
                    "refused",
                ),
            }
            for name, (data, right) in inputs.items():
                report.line(name, expected=right, got=_updates(strategy.scope, data))
            strategy.close()
