"""`BatchNormalization(synchronized=True)` in synchronous rounds: one warning names the layer.

The devices of one worker share the statistics of a batch, as under `MirroredStrategy`; workers do
not, which nothing said.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report

X = np.random.RandomState(0).rand(64, 4).astype("float32")
X += np.arange(64, dtype="float32")[:, None] / 32
Y = X.sum(1, keepdims=True)


class Messages(logging.Handler):
    """Keeps what tfps logs."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def compare(report: Report) -> None:
    """Count the warnings with two workers; compare the numbers of a worker with two devices."""
    messages = Messages()
    logging.getLogger("tfps").addHandler(messages)
    for synchronized in (False, True):
        with tfps.LocalCluster(workers=2, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(
                cluster.cluster_resolver, consistency="synchronous"
            )
            _train(strategy.scope(), synchronized=synchronized, batch=8)
            strategy.close()
        warnings = [text for text in messages.texts if "synchronized=True" in text]
        case = f"2 workers, synchronized={synchronized}: warnings that name the layer"
        found = sum("norm: " in text for text in warnings)
        report.line(case, expected=int(synchronized), got=found)
    expected = _train(contextlib.nullcontext(), synchronized=False, batch=16)
    devices = {"TFPS_LOGICAL_CPUS": "2"}
    with tfps.LocalCluster(workers=1, ps=1, environment=devices) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        for synchronized in (True, False):
            weights = _train(strategy.scope(), synchronized=synchronized, batch=16)
            agrees = np.allclose(weights, expected, rtol=1e-4, atol=1e-5)
            report.line(
                f"one worker with 2 devices, synchronized={synchronized}: as one batch",
                expected=synchronized,
                got=agrees,
            )
        strategy.close()


def _train(scope: Any, *, synchronized: bool, batch: int) -> np.ndarray[Any, Any]:
    keras.utils.set_random_seed(1)
    with scope:
        layer = keras.layers.BatchNormalization(synchronized=synchronized, name="norm")
        model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(X, Y, batch_size=batch, shuffle=False, epochs=2, verbose=0)
    return np.concatenate([weight.ravel() for weight in model.get_weights()])
