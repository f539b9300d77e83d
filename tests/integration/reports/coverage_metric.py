"""Metrics whose state is no sum, but looks like one in the first batch.

The share of a catalogue that was seen, and the largest error so far, become right for any number
of workers; what goes by the order of the batches is right for one, and refused for several.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report
from tfps.errors import UnsupportedError

ITEMS, EXAMPLES, BATCH = 20, 64, 8
REFUSED = "refused"
Scope = Callable[[], contextlib.AbstractContextManager[Any]]


class Coverage(keras.metrics.Metric):
    """The share of the catalogue that was seen."""

    def __init__(self, name: str = "coverage") -> None:
        super().__init__(name=name)
        self.seen = self.add_variable((ITEMS,), "zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        ids = keras.ops.cast(keras.ops.reshape(y_true, (-1,)), "int32")
        now = keras.ops.max(keras.ops.one_hot(ids, ITEMS), axis=0)
        self.seen.assign(keras.ops.maximum(self.seen, now))

    def result(self) -> Any:
        return keras.ops.mean(self.seen)


class Largest(keras.metrics.Metric):
    """The largest target so far."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.value = self.add_variable((), "zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        now = keras.ops.cast(keras.ops.max(y_true), "float32")
        self.value.assign(keras.ops.maximum(self.value, now))

    def result(self) -> Any:
        return self.value


class Last(Largest):
    """The last target."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(keras.ops.cast(y_true[-1, 0], "float32"))


def run(scope: Scope, kind: type[keras.metrics.Metric], y: np.ndarray[Any, Any]) -> list[float]:
    """Train for two epochs and evaluate; return the metric after each."""
    with scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[kind(name="it")])
    x = np.zeros((EXAMPLES, 1), "float32")
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, epochs=2, verbose=0).history["it"]
    evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)["it"]
    return [round(float(value), 3) for value in (*history, evaluated)]


def compare(report: Report) -> None:
    items = np.arange(EXAMPLES).reshape(-1, 1) % ITEMS  # the first batch has 8 of 20
    repeated = np.random.RandomState(0).randint(0, ITEMS, (EXAMPLES, 1)).astype("float64")
    repeated[0] = repeated[7]  # the first batch has one twice
    errors = np.zeros((EXAMPLES, 1))
    errors[BATCH:] = 1.0  # the first batch has none
    cases: list[tuple[str, type[keras.metrics.Metric], np.ndarray[Any, Any]]] = [
        ("coverage", Coverage, items),
        ("coverage, the first batch repeats an item", Coverage, repeated),
        ("largest", Largest, errors),
        ("last", Last, errors),
    ]
    alone = [run(contextlib.nullcontext, kind, y) for _, kind, y in cases]
    for workers in (1, 2):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            for (name, kind, y), right in zip(cases, alone, strict=True):
                expected: object = REFUSED if kind is Last and workers > 1 else right
                strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
                try:
                    got: object = run(strategy.scope, kind, y)
                except UnsupportedError:
                    got = REFUSED
                report.line(f"{workers} workers, {name}", expected=expected, got=got)
                strategy.close()
