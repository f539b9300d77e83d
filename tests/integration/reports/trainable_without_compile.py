"""`layer.trainable` set between two fits without `compile`: Keras goes on with what it compiled.

A layer that was frozen stood still at once, and one that was thawed was an "Unknown variable".
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report

X = np.random.RandomState(0).rand(64, 4).astype("float32")
Y = X.sum(1, keepdims=True)


def compare(report: Report) -> None:
    """Compare how far a layer's weights move in the second fit."""
    with tfps.LocalCluster(workers=1, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        for before in (True, False):
            expected = _moved(contextlib.nullcontext(), before=before)
            report.line(
                f"trainable {before} -> {not before}: the kernel moves by",
                expected=expected,
                got=_moved(strategy.scope(), before=before),
            )
        strategy.close()


def _moved(scope: Any, *, before: bool) -> float:
    keras.utils.set_random_seed(1)
    with scope:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.layers[0].trainable = before
        model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    model.layers[0].trainable = not before
    kernel = model.get_weights()[0]
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    return round(float(np.abs(model.get_weights()[0] - kernel).max()), 3)
