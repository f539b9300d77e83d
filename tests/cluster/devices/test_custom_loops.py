"""Scheduled functions whose `strategy.run` runs on two devices of a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

STEPS, BATCH = 12, 8


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS * BATCH, 4)).astype("float32")
    return x, (x @ random.normal(size=(4, 1))).astype("float32")


def build() -> tuple[keras.Model, keras.optimizers.Optimizer]:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def gradients_of(
    model: keras.Model, x: Any, y: Any, *, global_batch: int
) -> tuple[list[tf.Tensor], tf.Tensor]:
    with tf.GradientTape() as tape:
        errors = tf.reduce_sum(tf.square(model(x, training=True) - y), -1)
        loss = tf.nn.compute_average_loss(errors, global_batch_size=global_batch)
    return tape.gradient(loss, model.trainable_variables), loss


@pytest.mark.parametrize("nested", [False, True], ids=["function", "nested_tf_function"])
def test_numbers_of_one_machine(strategy: tfps.ParameterServerStrategy, nested: bool) -> None:
    x, y = data()
    local, local_optimizer = build()
    expected = []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        gradients, loss = gradients_of(local, x[rows], y[rows], global_batch=BATCH)
        local_optimizer.apply_gradients(zip(gradients, local.trainable_variables, strict=True))
        expected.append(float(loss))

    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = build()
        seen = keras.metrics.Sum(name="seen")
    before = strategy.stats()

    def per_worker() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        return strategy.experimental_distribute_dataset(dataset)

    def replica_step(batch: Any) -> tf.Tensor:
        gradients, loss = gradients_of(model, *batch, global_batch=BATCH)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        seen.update_state(tf.ones_like(batch[1]))
        return loss

    run_on_replicas = tf.function(replica_step) if nested else replica_step

    @tf.function
    def step_function(iterator: Any) -> tf.Tensor:
        losses = strategy.run(run_on_replicas, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    iterator = iter(coordinator.create_per_worker_dataset(per_worker))
    results = [coordinator.schedule(step_function, args=(iterator,)) for _ in range(STEPS)]
    coordinator.join()
    np.testing.assert_allclose([float(r.fetch()) for r in results], expected, rtol=1e-5)
    for one, two in zip(local.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(two, one, atol=1e-6)
    assert int(optimizer.iterations.numpy()) == STEPS
    assert float(seen.result()) == STEPS * BATCH
    after = strategy.stats()
    assert after.fallback_steps == before.fallback_steps
    assert after.updates_applied - before.updates_applied == STEPS


@pytest.mark.parametrize("nested", [False, True], ids=["function", "nested_tf_function"])
def test_local_steps_on_two_devices(
    cluster: Callable[..., LocalCluster], cluster_size: dict[str, int], nested: bool
) -> None:
    """Both devices go on from the same weights after each of their steps."""
    period, steps_per_function = 4, 6
    strategy = tfps.ParameterServerStrategy(
        cluster(**cluster_size).cluster_resolver, consistency=tfps.LocalSteps(period)
    )
    x, y = (np.reshape(part, [STEPS, BATCH, -1]) for part in data())
    local, local_optimizer = build()
    for batch in zip(x, y, strict=True):
        gradients, _ = gradients_of(local, *batch, global_batch=BATCH)
        local_optimizer.apply(gradients, local.trainable_variables)

    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = build()

    def replica_step(rows: tf.Tensor, targets: tf.Tensor) -> None:
        gradients, _ = gradients_of(model, rows, targets, global_batch=BATCH)
        optimizer.apply(gradients, model.trainable_variables)

    run_on_replicas = tf.function(replica_step) if nested else replica_step

    @tf.function
    def steps(rows: tf.Tensor, targets: tf.Tensor) -> None:
        half = BATCH // 2
        for number in tf.range(steps_per_function):

            def of_device(context: Any, number: tf.Tensor = number) -> tuple[tf.Tensor, tf.Tensor]:
                begin = half * context.replica_id_in_sync_group
                part = slice(begin, begin + half)
                return rows[number][part], targets[number][part]

            parts = strategy.experimental_distribute_values_from_function(of_device)
            strategy.run(run_on_replicas, args=parts)

    for first in range(0, STEPS, steps_per_function):
        part = slice(first, first + steps_per_function)
        coordinator.schedule(steps, args=(tf.constant(x[part]), tf.constant(y[part])))
    coordinator.join()
    for one, two in zip(local.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(two, one, atol=1e-6)
    assert int(optimizer.iterations.numpy()) == STEPS
    assert strategy.stats().updates_applied == 2 * STEPS // steps_per_function
    strategy.close()


def test_raw_variables_as_in_tensorflow(strategy: tfps.ParameterServerStrategy) -> None:
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    def replica_step() -> tf.Tensor:
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        total.assign_add(1.0 + number)
        return number

    @tf.function
    def step_function() -> Any:
        return strategy.experimental_local_results(strategy.run(replica_step))

    results = [coordinator.schedule(step_function) for _ in range(5)]
    coordinator.join()
    assert [[float(each) for each in result.fetch()] for result in results] == [[0.0, 1.0]] * 5
    assert float(total.numpy()) == 15.0
