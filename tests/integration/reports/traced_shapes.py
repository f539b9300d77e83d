"""Batches of many lengths, and of many sizes: for which shapes a layer is traced.

Keras traces a step for the first shape, and for a relaxed one that all others have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report

LENGTHS, SIZES = range(3, 13), range(1, 31)
METHODS = ("train_on_batch", "test_on_batch", "fit")
MODES: dict[str, Callable[[], Any]] = {
    "asynchronous": tfps.Asynchronous,
    "synchronous": tfps.Synchronous,
}

Scope = Callable[[], AbstractContextManager[object]]


class LengthRecorder(keras.layers.Layer):
    """A layer that lists the lengths that it is traced for."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int | None] = []

    def call(self, x: Any) -> Any:
        self.lengths.append(x.shape[1])
        return x


def lengths_traced(scope: Scope, method: str) -> set[int | None]:
    """Return the lengths for which a step is traced while it gets batches of ten."""
    with scope():
        traced = LengthRecorder()
        model = keras.Sequential(
            [
                keras.Input((None,), dtype="int32"),
                traced,
                keras.layers.Embedding(50, 8),
                keras.layers.LSTM(8),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse")
    options = {"verbose": 0} if method == "fit" else {}
    for length in LENGTHS:
        getattr(model, method)(np.ones((8, length), "int32"), np.ones((8, 1), "float32"), **options)
    return set(traced.lengths)


def traces_of_sizes(scope: Scope) -> int:
    """Return how often a layer is traced in batches of thirty sizes, after the first two."""
    with scope():
        traced = LengthRecorder()
        model = keras.Sequential([keras.Input((8,)), traced, keras.layers.Dense(1)])
        model.compile("adam", "mse")

    def train(size: int) -> None:
        model.train_on_batch(np.ones((size, 8), "float32"), np.ones((size, 1), "float32"))

    train(SIZES[0])
    train(SIZES[1])
    before = len(traced.lengths)
    for size in SIZES:
        train(size)
    return len(traced.lengths) - before


def compare(report: Report) -> None:
    expected_traces = traces_of_sizes(contextlib.nullcontext)
    expected = {method: lengths_traced(contextlib.nullcontext, method) for method in METHODS}
    for workers in (1, 2):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            for name, mode in MODES.items():
                strategy = tfps.ParameterServerStrategy(
                    cluster.cluster_resolver, consistency=mode()
                )
                for method in METHODS:
                    report.line(
                        f"{workers} workers, {name}, {method}: lengths traced",
                        expected=expected[method],
                        got=lengths_traced(strategy.scope, method),
                    )
                report.line(
                    f"{workers} workers, {name}, traces for further batch sizes",
                    expected=expected_traces,
                    got=traces_of_sizes(strategy.scope),
                )
                strategy.close()
