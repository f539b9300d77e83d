"""A model that a program drops, as a search over models does, leaves nothing on the servers."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.graphs import graphs_left_alone_by_the_collector
from tfps.runtime.coordinator import storage
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(600)

DEADLINE_S = 20.0
X, Y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
MODES: dict[str, Callable[[], Any]] = {
    "asynchronous": tfps.Asynchronous,
    "synchronous": tfps.Synchronous,
    "local steps": lambda: tfps.LocalSteps(2),
}
Clusters = Callable[..., InProcessCluster]


def made(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(), "mse")
    return model


def fit(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    model = made(strategy)
    model.fit(X, Y, batch_size=2, verbose=0)
    model.evaluate(X, Y, batch_size=2, verbose=0)
    return model


def one_batch(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    model = made(strategy)
    model.train_on_batch(X, Y)
    return model


def scheduled(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    model, coordinator = made(strategy), strategy.coordinator
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    for _ in range(2):
        coordinator.schedule(step, (tf.constant(X), tf.constant(Y)))
    coordinator.join()
    return model


def names_on(strategy: tfps.ParameterServerStrategy) -> list[str]:
    return sorted(
        resource.shared_name
        for contents in strategy.runtime.contents
        for resource in contents.records
    )


def assert_nothing_is_left(
    strategy: tfps.ParameterServerStrategy, train: Callable[..., keras.Model]
) -> None:
    dropped, held = [], []
    for _ in range(3):
        model = train(strategy)
        dropped += [weakref.ref(model), weakref.ref(model.optimizer)]
        del model
        until_s = time.monotonic() + DEADLINE_S
        while strategy.plan.views and time.monotonic() < until_s:
            gc.collect()  # a worker's thread may only just have dropped its last function
        strategy.runtime.collect()
        held.append(names_on(strategy))
    assert strategy.plan.views == ()
    assert not [reference() for reference in dropped if reference() is not None]
    assert held[2] == held[1]


@pytest.mark.quick("scheduled")
@pytest.mark.parametrize("train", [fit, one_batch, scheduled])
def test_a_dropped_model_is_freed(
    strategy: tfps.ParameterServerStrategy, train: Callable[..., keras.Model]
) -> None:
    assert_nothing_is_left(strategy, train)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("workers", [1, 2])
def test_in_every_mode(cluster: Clusters, name: str, workers: int) -> None:
    resolver = cluster(workers=workers, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, consistency=MODES[name]())
    assert_nothing_is_left(strategy, fit)
    strategy.close()


@pytest.mark.rare
def test_the_next_model_takes_the_place_of_a_dropped_one(
    strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's collector knows nothing of the memory on servers, so it runs before a new model."""
    monkeypatch.setattr(storage, "COLLECTED_BYTES", 1)
    with graphs_left_alone_by_the_collector():
        dropped = weakref.ref(fit(strategy))
        gc.disable()
        try:
            sizes = [sum(strategy.runtime.bytes_per_server)]
            next_one = made(strategy)
            sizes.append(sum(strategy.runtime.bytes_per_server))
        finally:
            gc.enable()
    assert dropped() is None
    assert sizes[1] < sizes[0]
    del next_one
