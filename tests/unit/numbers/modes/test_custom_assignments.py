"""Scheduled functions that assign the weights that they train: each change counts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import TABLE
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

STEPS = 5


@pytest.mark.repeats
@pytest.mark.parametrize(
    "mode",
    [
        tfps.Asynchronous(),
        tfps.BoundedStaleness(2),
        tfps.Synchronous(),
        tfps.LocalSteps(2),
    ],
    ids=["asynchronous", "bounded_staleness", "synchronous", "local_steps"],
)
def test_one_worker_is_one_process(cluster: Callable[..., InProcessCluster], mode: Any) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, placement="round_robin", consistency=mode
    )

    def make() -> tuple[Any, list[Any]]:
        weights = [keras.Variable(np.ones([3], "float32"), name=name) for name in "ab"]
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(weights)
        return optimizer, weights

    def train(optimizer: Any, weights: list[Any], rows: tf.Tensor) -> None:
        for number in tf.range(STEPS):
            weights[0].assign(0.9 * weights[0])
            optimizer.apply([rows[number] + weight for weight in weights], weights)
            weights[1].assign(tf.clip_by_value(weights[1], -0.5, 0.5))

    with strategy.scope():
        ours = make()

    @tf.function
    def steps(rows: tf.Tensor) -> None:
        train(*ours, rows)

    parts = [tf.constant(TABLE[first : first + STEPS]) for first in (0, STEPS)]
    coordinator = tfps.ClusterCoordinator(strategy)
    for rows in parts:
        coordinator.schedule(steps, args=(rows,))
    coordinator.join()
    found = [weight.numpy() for weight in ours[1]]
    strategy.close()
    with tf.device("CPU:0"):
        alone = make()
        for rows in parts:
            train(*alone, rows)
        expected = [weight.numpy() for weight in alone[1]]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
