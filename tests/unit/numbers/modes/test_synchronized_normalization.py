"""`BatchNormalization(synchronized=True)` is told of once: workers do not share statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import check_message
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

X = np.random.RandomState(0).rand(16, 4).astype("float32")


def make_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.BatchNormalization(name="plain"),
            keras.layers.BatchNormalization(synchronized=True, name="shared"),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "synchronized" in r.getMessage()]


@pytest.mark.rare
@pytest.mark.quick("2-asynchronous")
@pytest.mark.parametrize(
    ("workers", "mode"),
    [(2, "synchronous"), (2, "asynchronous"), (2, tfps.LocalSteps(2)), (1, "synchronous")],
)
def test_fit_says_so(
    cluster: Callable[..., InProcessCluster],
    caplog: pytest.LogCaptureFixture,
    workers: int,
    mode: Any,
) -> None:
    resolver = cluster(workers=workers, ps=1).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=mode)
    with strategy.scope():
        model = make_model()
    model.fit(X, X[:, :1], batch_size=4, verbose=0)
    model.compile("sgd", "mse")
    model.fit(X, X[:, :1], batch_size=4, verbose=0)
    model.evaluate(X, X[:, :1], verbose=0)
    strategy.close()
    found = warnings_of(caplog)
    assert len(found) == workers - 1
    for message in found:
        check_message(message, "/shared: ", received="2 workers", remedy="synchronized=False")


@pytest.mark.repeats
def test_scheduled_functions_say_so(
    cluster: Callable[..., InProcessCluster], caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    with strategy.scope():
        model = make_model()

    @tf.function
    def step() -> tf.Tensor:
        return tf.reduce_sum(model(X, training=True))

    for _ in range(3):
        strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    strategy.close()
    assert len(warnings_of(caplog)) == 1
