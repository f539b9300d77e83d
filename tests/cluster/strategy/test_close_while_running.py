"""A strategy is closed while scheduled functions run: quietly, and the next one works."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

MODES: dict[str, dict[str, Any]] = {
    "direct": {},
    "grpc": {"transport": "grpc"},
    "synchronous": {"consistency": tfps.Synchronous()},
    "bounded": {"consistency": tfps.BoundedStaleness(2), "transport": "grpc"},
    "local steps": {"consistency": tfps.LocalSteps(2)},
}


def _scheduled(strategy: tfps.ParameterServerStrategy, functions: int) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    coordinator = tfps.ClusterCoordinator(strategy)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.ones((8, 4))) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    for _ in range(functions):
        coordinator.schedule(step)


@pytest.mark.slow
@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
def test_closing_is_quiet_and_the_next_strategy_works(
    cluster: Callable[..., LocalCluster], caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    resolver = cluster(workers=2, ps=1).cluster_resolver
    logging.getLogger("tensorflow").addHandler(caplog.handler)
    try:
        for functions in (1, 3, 2):
            strategy = tfps.ParameterServerStrategy(resolver, **options)
            _scheduled(strategy, functions)
            strategy.close()
        strategy = tfps.ParameterServerStrategy(resolver, **options)
        _scheduled(strategy, 4)
        strategy.coordinator.join()
        assert strategy.stats().updates_applied > 0
        strategy.close()
    finally:
        logging.getLogger("tensorflow").removeHandler(caplog.handler)
    warnings = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert warnings == []
