"""In a custom loop, too, only a batch's rows travel of a large table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import assert_same
from tests.unit.numbers.large_tables import (
    BATCH,
    IDS,
    OPTIMIZERS,
    STEPS,
    TABLE_BYTES,
    batches,
    small_tables,
    step_of,
    trained_alone,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)


# A quicker one, of `fit`, is in test_sparse_updates.py.
@pytest.mark.repeats
def test_only_rows_are_updated(cluster: Callable[..., InProcessCluster]) -> None:
    """Nothing changes for Adagrad by that; Adam's momentum leaves the other rows where they are."""
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)

        def adagrad() -> Any:
            return keras.optimizers.Adagrad(0.1)

        with strategy.scope():
            model = small_tables(lambda: tfps.optimizers.SparseUpdates(adagrad()))
        begin = model.get_weights()
        step = tf.function(step_of(model, 1))
        losses = [float(coordinator.schedule(step, args=b).fetch()) for b in batches()]
        expected, weights = trained_alone(begin, adagrad, calls=1)
        np.testing.assert_allclose(losses, expected, atol=1e-5)
        assert_same(model.get_weights(), weights, tolerance=2e-5)

        with strategy.scope():
            model = small_tables(lambda: tfps.optimizers.SparseUpdates(keras.optimizers.Adam(0.01)))
        step = tf.function(step_of(model, 1))
        first, second = batches()[:2]
        coordinator.schedule(step, args=first).fetch()
        before = model.get_layer("own").get_weights()[0]
        coordinator.schedule(step, args=second).fetch()
        after = model.get_layer("own").get_weights()[0]
        moved = np.flatnonzero((before != after).any(1))
        np.testing.assert_array_equal(moved, np.unique(second[0]))


@pytest.mark.repeats
def test_a_function_that_only_reads(cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            model = small_tables(OPTIMIZERS["sgd"])
        look_up = tf.function(lambda ids: model(ids, training=False))
        before = strategy.stats().bytes_pulled
        found = coordinator.schedule(look_up, args=(tf.constant(IDS),)).fetch()
        assert strategy.stats().bytes_pulled - before < TABLE_BYTES
        np.testing.assert_allclose(found, model(IDS), atol=1e-5)


@pytest.mark.rare
@pytest.mark.parametrize("place", ["in a loop", "in a branch"])
def test_where_rows_are_asked_for(place: str, cluster: Callable[..., InProcessCluster]) -> None:
    """A loop's body may ask for rows and train them; a branch cannot, for what comes after it."""
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            model = small_tables(OPTIMIZERS["adam"])
        begin = model.get_weights()
        step = step_of(model, 1)

        @tf.function
        def in_a_loop(ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            loss = tf.constant(0.0)
            for _ in tf.range(2):
                loss = step(ids, labels)
            return loss

        @tf.function
        def in_a_branch(ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            losses = []
            for _ in range(2):
                with tf.GradientTape() as tape:
                    outputs = tf.cond(
                        ids[0, 0] >= 0, lambda: model(ids), lambda: tf.zeros([BATCH, 3])
                    )
                    losses.append(model.compute_loss(ids, labels, outputs))
                variables = model.trainable_variables
                model.optimizer.apply(tape.gradient(losses[-1], variables), variables)
            return losses[-1]

        steps = in_a_loop if place == "in a loop" else in_a_branch
        before = strategy.stats().bytes_pulled
        losses = [float(coordinator.schedule(steps, args=b).fetch()) for b in batches()]
        pulled = strategy.stats().bytes_pulled - before
        found = model.get_weights()
    assert pulled < TABLE_BYTES if place == "in a loop" else pulled > STEPS * TABLE_BYTES
    expected, weights = trained_alone(begin, OPTIMIZERS["adam"], calls=2)
    np.testing.assert_allclose(losses, expected, atol=1e-5)
    assert_same(found, weights, tolerance=2e-5)
