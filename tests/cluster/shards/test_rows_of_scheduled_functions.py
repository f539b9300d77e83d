"""In a custom loop, too, only a batch's rows travel of a large table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.shards.test_rows import IDS, OPTIMIZERS, TABLE_BYTES, small_tables
from tests.unit.numbers.comparison import LABELS, LOCAL, assert_same, densify
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

MODES: dict[str, Any] = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(1),
    "synchronous": tfps.Synchronous(),
    "local": tfps.LocalSteps(2),
}
BY_ROWS = ("asynchronous", "bounded")
UNSCALED = [name for name in OPTIMIZERS if name != "scaled loss"]  # a loop scales it itself
STEPS, BATCH = 6, 16


def _step(model: keras.Model, calls: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    def step(ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in range(calls):  # the second computes from what the first has changed
            with tf.GradientTape() as tape:
                loss = model.compute_loss(ids, labels, model(ids, training=True))
            variables = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def _batches() -> list[tuple[tf.Tensor, tf.Tensor]]:
    places = [np.arange(k * BATCH, (k + 1) * BATCH) % len(IDS) for k in range(STEPS)]
    with tf.device(LOCAL):
        return [(tf.constant(IDS[rows]), tf.constant(LABELS[rows])) for rows in places]


def _alone(
    weights: list[np.ndarray], optimizer: Callable[[], Any], *, calls: int
) -> tuple[list[float], list[np.ndarray]]:
    """What one process makes of it."""
    with tf.device(LOCAL):
        model = small_tables(optimizer)
        model.set_weights(weights)
        densify(model.optimizer)
        step = _step(model, calls)
        losses = [float(step(*batch)) for batch in _batches()]
    return losses, model.get_weights()


@pytest.mark.conformance
@pytest.mark.quick("hash-asynchronous-adam-2*", "None-bounded-sgd-1*")
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("optimizer", UNSCALED)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["hash", None])
def test_one_process(
    name: str | None,
    mode: str,
    optimizer: str,
    calls: int,
    *,
    cluster: Callable[..., LocalCluster],
    carrier: str,
) -> None:
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    make = OPTIMIZERS[optimizer]
    running = cluster(workers=1, ps=2)
    with strategy_with(running, partitioner, consistency=MODES[mode]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            model = small_tables(make)
        begin = model.get_weights()
        step = tf.function(_step(model, calls))
        before = strategy.stats()
        losses = [float(coordinator.schedule(step, args=b).fetch()) for b in _batches()]
        after = strategy.stats()
        found = model.get_weights()
        assert after.fallback_steps == 0
    expected, weights = _alone(begin, make, calls=calls)
    np.testing.assert_allclose(losses, expected, atol=1e-5)
    assert_same(found, weights, tolerance=2e-5)
    moved = after.bytes_pulled - before.bytes_pulled, after.bytes_pushed - before.bytes_pushed
    if mode in BY_ROWS:
        assert max(moved) < TABLE_BYTES
    else:
        assert min(moved) > STEPS * TABLE_BYTES


def test_only_rows_are_updated(cluster: Callable[..., LocalCluster]) -> None:
    """Which changes nothing for Adagrad; Adam's momentum leaves the other rows where they are."""
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["hash"]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)

        def adagrad() -> Any:
            return keras.optimizers.Adagrad(0.1)

        with strategy.scope():
            model = small_tables(lambda: tfps.optimizers.RowUpdates(adagrad()))
        begin = model.get_weights()
        step = tf.function(_step(model, 1))
        losses = [float(coordinator.schedule(step, args=b).fetch()) for b in _batches()]
        expected, weights = _alone(begin, adagrad, calls=1)
        np.testing.assert_allclose(losses, expected, atol=1e-5)
        assert_same(model.get_weights(), weights, tolerance=2e-5)

        with strategy.scope():
            model = small_tables(lambda: tfps.optimizers.RowUpdates(keras.optimizers.Adam(0.01)))
        step = tf.function(_step(model, 1))
        first, second = _batches()[:2]
        coordinator.schedule(step, args=first).fetch()
        before = model.get_layer("own").get_weights()[0]
        coordinator.schedule(step, args=second).fetch()
        after = model.get_layer("own").get_weights()[0]
        moved = np.flatnonzero((before != after).any(1))
        np.testing.assert_array_equal(moved, np.unique(second[0]))


def test_a_function_that_only_reads(cluster: Callable[..., LocalCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["hash"]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            model = small_tables(OPTIMIZERS["sgd"])
        look_up = tf.function(lambda ids: model(ids, training=False))
        before = strategy.stats().bytes_pulled
        found = coordinator.schedule(look_up, args=(tf.constant(IDS),)).fetch()
        assert strategy.stats().bytes_pulled - before < TABLE_BYTES
        np.testing.assert_allclose(found, model(IDS), atol=1e-5)


@pytest.mark.parametrize("place", ["in a loop", "in a branch"])
def test_where_rows_are_asked_for(place: str, cluster: Callable[..., LocalCluster]) -> None:
    """A loop's body may ask for rows and train them; a branch cannot, for what comes after it."""
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["hash"]) as strategy:
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            model = small_tables(OPTIMIZERS["adam"])
        begin = model.get_weights()
        step = _step(model, 1)

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
        losses = [float(coordinator.schedule(steps, args=b).fetch()) for b in _batches()]
        pulled = strategy.stats().bytes_pulled - before
        found = model.get_weights()
    assert pulled < TABLE_BYTES if place == "in a loop" else pulled > STEPS * TABLE_BYTES
    expected, weights = _alone(begin, OPTIMIZERS["adam"], calls=2)
    np.testing.assert_allclose(losses, expected, atol=1e-5)
    assert_same(found, weights, tolerance=2e-5)
