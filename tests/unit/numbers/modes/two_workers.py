"""Checks that two workers together move by the mean of what each would do alone."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.unit.numbers.modes.small_network import BATCH, examples, network

LOCAL = "CPU:0"
WORKERS = 2
WARM_UP_STEPS = 6

# A running cluster of two workers and two servers: of processes, or within this one.
Cluster = Any


def _strategy(cluster: Cluster, mode: Any, **options: Any) -> tfps.ParameterServerStrategy:
    return tfps.ParameterServerStrategy(
        cluster.cluster_resolver, placement="round_robin", consistency=mode, **options
    )


def assert_gradients_are_averaged(cluster: Cluster, *, rounds: int) -> None:
    """Check that rounds of all workers give the numbers of one process, bit by bit."""
    x, y = examples(WORKERS * BATCH * rounds)
    strategy = _strategy(cluster, "synchronous")
    with strategy.scope():
        model = network(keras.optimizers.SGD(0.1))
    before = model.get_weights()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    after, stats = model.get_weights(), strategy.stats()
    strategy.close()
    with tf.device(LOCAL):
        reference = network(keras.optimizers.SGD(0.1))
        reference.set_weights(before)
        variables = reference.trainable_variables

        @tf.function
        def gradients(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = reference.compute_loss(y=y, y_pred=reference(x))
            return tape.gradient(loss, variables)

        batches = [slice(i, i + BATCH) for i in range(0, len(x), BATCH)]
        for first, second in zip(batches[::2], batches[1::2], strict=True):
            pairs = zip(gradients(x[first], y[first]), gradients(x[second], y[second]), strict=True)
            reference.optimizer.apply([(a + b) / 2 for a, b in pairs], variables)
    for weight, expected in zip(after, reference.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert stats.versions == (rounds, rounds)
    assert stats.worker_steps == (rounds, rounds)
    assert stats.gradient_staleness_updates == {0: 2 * rounds}


def assert_weights_are_averaged(cluster: Cluster, *, period: int, rounds: int = 20) -> None:
    """Check the means of plain SGD: without slots, the order of the workers does not matter."""
    x, y = examples(WORKERS * period * rounds * BATCH)
    strategy = _strategy(cluster, tfps.LocalSteps(period, synchronous_periods=True))
    with strategy.scope():
        model = network(keras.optimizers.SGD(0.2))
    before = model.get_weights()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    after, stats = model.get_weights(), strategy.stats()
    iterations = int(model.optimizer.iterations)
    strategy.close()
    with tf.device(LOCAL):
        worker, expected = network(keras.optimizers.SGD(0.2)), before
        for at in range(0, len(x), WORKERS * period * BATCH):
            results = []
            for begin in (at, at + period * BATCH):
                worker.set_weights(expected)
                for first_row in range(begin, begin + period * BATCH, BATCH):
                    rows = slice(first_row, first_row + BATCH)
                    worker.train_on_batch(x[rows], y[rows])
                results.append(worker.get_weights())
            expected = [(a + b) / 2 for a, b in zip(*results, strict=True)]
    for weight, other, first in zip(after, expected, before, strict=True):
        assert np.linalg.norm(weight - other) <= 5e-6 * np.linalg.norm(other - first)
    assert stats.versions == (rounds, rounds)
    assert iterations == rounds * period
    assert stats.worker_steps == (rounds * period, rounds * period)


def assert_all_go_on_from_the_mean(cluster: Cluster, mode: Any, *, rounds: int) -> None:
    """Check training after a warm-up: the momentum of a new optimizer shows where workers meet.

    Args:
        cluster: of two workers and two servers.
        mode: with WARM_UP_STEPS.
        rounds: of both workers, after the warm-up.
    """
    steps = WARM_UP_STEPS
    warm, drained = WORKERS * steps * BATCH, WORKERS * rounds * BATCH
    x, y = examples(warm + drained)
    make = functools.partial(keras.optimizers.SGD, 0.1, momentum=0.9)
    strategy = _strategy(cluster, mode, batch_callbacks="sampled")
    with strategy.scope():
        model = network(make())
    before = model.get_weights()
    counts = []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: counts.append(logs["loss"])
    )
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[count])
    after, stats = model.get_weights(), strategy.stats()
    iterations = int(model.optimizer.iterations)
    strategy.close()
    assert stats.worker_steps[0] + stats.worker_steps[1] == len(x) // BATCH
    assert min(stats.worker_steps) >= steps
    assert len(counts) == len(x) // BATCH
    assert np.isfinite(history.history["loss"][0])
    with tf.device(LOCAL):
        alone, results = network(make()), []
        for begin in range(0, warm, steps * BATCH):
            rows = slice(begin, begin + steps * BATCH)
            alone.compile(make(), alone.loss)
            alone.set_weights(before)
            alone.fit(x[rows], y[rows], batch_size=BATCH, shuffle=False, verbose=0)
            results.append(alone.get_weights())
        mean = [sum(weights) / WORKERS for weights in zip(*results, strict=True)]
        alone.compile(make(), alone.loss)
        alone.set_weights(mean)
        if rounds:
            alone.fit(x[warm:], y[warm:], batch_size=WORKERS * BATCH, shuffle=False, verbose=0)
    for weight, expected, first in zip(after, alone.get_weights(), before, strict=True):
        assert np.linalg.norm(weight - expected) <= 1e-5 * np.linalg.norm(expected - first)
    assert iterations == rounds
