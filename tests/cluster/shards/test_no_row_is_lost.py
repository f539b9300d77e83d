"""Ten thousand pushes of rows by two workers, one of which dies: no row is lost, and none twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FUNCTIONS, STEPS = 500, 20
PUSHES = FUNCTIONS * STEPS
DEATH_AFTER = PUSHES // 4
DEATH_DEADLINE_S = 600
ROWS, WIDTH = 5000, 4
SQUARES = np.arange(64, dtype=np.int64) ** 2  # so that a batch has ids that come more than once


def _ids_of(function: Any, step: Any) -> Any:
    """The ids that a step looks up, the same when its function runs again elsewhere."""
    return (function * 7919 + step * 104_729 + SQUARES) % ROWS


def test_ten_thousand_pushes_and_a_death(cluster: Callable[..., LocalCluster]) -> None:
    """Each look-up takes one off its row, so a row that is lost, or comes twice, is seen."""
    tasks = cluster(workers=2, ps=2)
    with strategy_with(tasks, PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            table = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer="zeros")
            table.build()
            optimizer = tfps.optimizers.SparseUpdates(keras.optimizers.SGD(1.0))
            optimizer.build(table.trainable_variables)
        coordinator = tfps.ClusterCoordinator(strategy)

        @tf.function
        def steps(function: tf.Tensor) -> None:
            for step in tf.range(STEPS, dtype=tf.int64):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(table(_ids_of(function, step)))
                variables = table.trainable_variables
                optimizer.apply(tape.gradient(loss, variables), variables)

        for function in range(FUNCTIONS):
            coordinator.schedule(steps, args=(tf.constant(function, tf.int64),))
        deadline = time.monotonic() + DEATH_DEADLINE_S
        while strategy.stats().updates_applied < DEATH_AFTER:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        tasks.kill("worker", 1)
        at_death = strategy.stats()
        coordinator.join()
        stats = strategy.stats()
        tasks.restart("worker", 1)
        found = table.get_weights()[0]

    assert at_death.updates_applied < PUSHES
    assert stats.versions == (PUSHES, PUSHES)
    assert stats.updates_applied == PUSHES
    assert stats.fallback_steps == 0
    looked_up = np.zeros([ROWS, 1])
    for function in range(FUNCTIONS):
        for step in range(STEPS):
            np.add.at(looked_up, _ids_of(function, step), 1)
    assert looked_up.sum() == PUSHES * len(SQUARES)
    np.testing.assert_array_equal(found, -np.broadcast_to(looked_up, found.shape))
