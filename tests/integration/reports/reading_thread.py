"""A second thread reads, saves, evaluates, predicts or trains while `fit` runs.

A web page or a widget of a notebook does that. Every step must be done all the same.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report

PAUSE_S = 0.05
EPOCHS, STEPS, BATCH = 2, 200, 4
X = np.random.default_rng(0).random((STEPS * BATCH, 4)).astype("float32")
Y = X.sum(1, keepdims=True)

Act = Callable[[keras.Model, keras.Model], object]


def model_in(scope: Callable[[], AbstractContextManager[object]]) -> keras.Model:
    with scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(X[:BATCH], Y[:BATCH], verbose=0)
    return model


def acts(folder: str) -> dict[str, Act]:
    return {
        "iterations": lambda model, _: model.optimizer.iterations.numpy(),
        "get_weights()": lambda model, _: model.get_weights(),
        "save()": lambda model, _: model.save(f"{folder}/model.keras"),
        "evaluate()": lambda model, _: model.evaluate(X[:80], Y[:80], verbose=0),
        "predict()": lambda model, _: model.predict(X[:8], verbose=0),
        "fit() of another model": lambda _, other: other.fit(X[:80], Y[:80], verbose=0),
    }


@contextlib.contextmanager
def repeated(act: Callable[[], object]) -> Iterator[list[str]]:
    """Call it in a second thread, again and again, and collect its errors."""
    done, errors, calls = threading.Event(), list[str](), 0

    def repeat() -> None:
        nonlocal calls
        while not done.wait(PAUSE_S):
            try:
                act()
                calls += 1
            except Exception as error:  # noqa: BLE001 - compared
                errors.append(f"{type(error).__name__}: {error}")
                return

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield errors
    finally:
        done.set()
        thread.join()
        if not calls and not errors:
            errors.append("it was never called")


def trained(
    scope: Callable[[], AbstractContextManager[object]], act: Act
) -> tuple[int, int, list[str]]:
    """Return the updates and the epochs of a `fit`, and the errors of the second thread."""
    model, other = model_in(scope), model_in(scope)
    before = int(model.optimizer.iterations.numpy())
    with repeated(lambda: act(model, other)) as errors:
        history: Any = model.fit(X, Y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    updates = int(model.optimizer.iterations.numpy()) - before
    return updates, len(history.history["loss"]), errors


def compare(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = {
            name: trained(contextlib.nullcontext, act) for name, act in acts(folder).items()
        }
        with tfps.LocalCluster(workers=2, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            for name, act in acts(folder).items():
                report.line(
                    f"a second thread calls {name}",
                    expected=expected[name],
                    got=trained(strategy.scope, act),
                )
            strategy.close()
