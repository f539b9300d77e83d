"""Our coordinator for TensorFlow's strategy; the other way round gives ours, see test_drop_in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def coordinator(cluster: Callable[..., LocalCluster]) -> tfps.ClusterCoordinator:
    resolver = cluster(workers=2, ps=1).cluster_resolver
    return tfps.ClusterCoordinator(tf.distribute.ParameterServerStrategy(resolver))


def test_it_schedules_as_tensorflows_own(coordinator: tfps.ClusterCoordinator) -> None:
    strategy = coordinator.strategy
    assert type(strategy) is tf.distribute.ParameterServerStrategy
    assert tfps.ClusterCoordinator(strategy) is coordinator
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        def replica(value: tf.Tensor) -> tf.Tensor:
            total.assign_add(value)
            return value

        return strategy.reduce("SUM", strategy.run(replica, args=(next(iterator),)), axis=None)

    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(1, 99)))
    results = [coordinator.schedule(step, args=(iterator,)) for _ in range(8)]
    coordinator.join()
    assert coordinator.done()
    assert int(total.numpy()) == sum(map(int, coordinator.fetch(results)))


def test_errors_are_tensorflows_own(coordinator: tfps.ClusterCoordinator) -> None:
    @tf.function
    def check(value: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_positive(value, message="not positive")
        return value

    coordinator.schedule(check, args=(tf.constant(-1.0),))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
        coordinator.join()
    assert coordinator.schedule(check, args=(tf.constant(2.0),)).fetch() == 2.0


def test_keras_3_is_left_to_tensorflow(coordinator: tfps.ClusterCoordinator) -> None:
    """TensorFlow has no `fit` for it under this strategy; nothing of ours gets in the way."""
    with coordinator.strategy.scope():
        weight = keras.Variable(2.0)
    result = coordinator.schedule(tf.function(lambda: weight * 3.0))
    assert result.fetch() == 6.0
