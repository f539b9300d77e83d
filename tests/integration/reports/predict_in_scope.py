"""Predictions inside of the scope, of a dataset function, and weights as arguments of functions.

These were refused, or failed with `Need to be inside "with strategy.scope()"`.
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

X = np.random.RandomState(0).rand(64, 4).astype("float32")
Y, PLACES = X.sum(1, keepdims=True), 4

Scope = Callable[[], AbstractContextManager[object]]


def batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(X).batch(8)


CALLS: dict[str, Callable[[keras.Model], Any]] = {
    "predict of 8 rows": lambda model: model.predict(X[:8], verbose=0),
    "predict in batches": lambda model: model.predict(X, batch_size=8, verbose=0),
    "predict of a dataset": lambda model: model.predict(batches(), verbose=0),
    "predict_on_batch": lambda model: model.predict_on_batch(X[:8]),
    "evaluate": lambda model: model.evaluate(X, Y, verbose=0),
    "a call": lambda model: model(X[:8]),
}


def _made() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def _in_scope(scope: Scope, *, trained: bool) -> dict[str, float]:
    found = {}
    for name, call in CALLS.items():
        with scope():
            model = _made()
            if trained:
                model.fit(X, Y, batch_size=64, verbose=0)
            found[name] = round(float(np.sum(call(model))), PLACES)
    return found


def compare(report: Report) -> None:
    expected = [_in_scope(contextlib.nullcontext, trained=trained) for trained in (False, True)]
    rows = _made().predict(X, verbose=0)
    for workers, mode in ((1, "asynchronous"), (2, "asynchronous"), (2, "synchronous")):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
            name = f"{workers} workers, {mode}"
            for trained in (False, True):
                report.line(
                    f"{name}, sums in the scope, {trained=}",
                    expected=expected[trained],
                    got=_in_scope(strategy.scope, trained=trained),
                )
            with strategy.scope():
                model = _made()
            found = model.predict(batches if workers == 1 else _sharded, verbose=0)
            same = found.shape == rows.shape and np.allclose(found, rows, atol=1e-5)
            report.line(f"{name}, rows of a dataset function in order", expected=True, got=same)
            coordinator = tfps.ClusterCoordinator(strategy)
            total = coordinator.schedule(
                tf.function(lambda kernel: tf.reduce_sum(kernel * 1.0)),
                args=(model.layers[0].kernel.value,),
            )
            report.line(
                f"{name}, sum of a kernel as an argument",
                expected=round(float(model.get_weights()[0].sum()), PLACES),
                got=round(float(total.fetch()), PLACES),
            )
            strategy.close()


def _sharded(context: tf.distribute.InputContext) -> tf.data.Dataset:
    return batches().shard(context.num_input_pipelines, context.input_pipeline_id)
