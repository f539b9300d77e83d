"""Moving averages of `BatchNormalization` with several workers, after as many steps as Keras took.

They moved a N-th of the way with N workers: training went well, and evaluation did not.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report

BATCH, STEPS, MOMENTUM = 32, 128, 0.99
X = np.random.RandomState(0).normal(5.0, 2.0, (BATCH * STEPS, 4)).astype("float32")
Y = (X.sum(1, keepdims=True) > 20).astype("float32")
WORKERS = 2


def compare(report: Report) -> None:
    """Train in one process, then in every mode, and compare averages and evaluations."""
    alone = _train(contextlib.nullcontext())
    a_round = _train(contextlib.nullcontext(), batch=BATCH * WORKERS)
    with tfps.LocalCluster(workers=WORKERS, ps=1) as cluster:
        for mode in (tfps.Asynchronous(), tfps.LocalSteps(4), tfps.Synchronous()):
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
            found = _train(strategy.scope())
            strategy.close()
            expected = a_round if isinstance(mode, tfps.Synchronous) else alone
            for name in ("mean", "variance"):
                report.line(
                    f"{WORKERS} workers, {mode}: moving {name}",
                    expected=expected[name].round(2).tolist(),
                    got=found[name].round(2).tolist(),
                    equal=np.allclose(found[name], expected[name], rtol=0.05),
                )
            report.line(
                f"{WORKERS} workers, {mode}: accuracy when evaluated",
                expected=expected["evaluated"],
                got=found["evaluated"],
                equal=found["evaluated"] > expected["evaluated"] - 0.1,
            )


def _train(scope: Any, *, batch: int = BATCH) -> dict[str, Any]:
    keras.utils.set_random_seed(1)
    with scope:
        layers = [
            keras.layers.BatchNormalization(momentum=MOMENTUM),
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(momentum=MOMENTUM),
            keras.layers.Dense(1, "sigmoid"),
        ]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    model.fit(X, Y, batch_size=batch, epochs=1, verbose=0)
    norm = model.layers[0]
    return {
        "mean": norm.moving_mean.numpy(),
        "variance": norm.moving_variance.numpy(),
        "evaluated": round(model.evaluate(X, Y, verbose=0)[1], 3),
    }
