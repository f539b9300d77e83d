"""Rounds whose batches are shared out: one worker's batches are one batch."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)


LOCAL = "CPU:0"
BATCHES = 4  # of a round, for each worker


@pytest.mark.slow
def test_the_batches_of_one_worker_are_one_batch(cluster: Callable[..., InProcessCluster]) -> None:
    """Also where they differ in length, and with clipping, which needs the whole gradient."""
    batch = 10
    random = np.random.default_rng(0)
    x = random.normal(size=(20 * BATCHES * batch + batch + 7, 8)).astype("float32")
    y = x[:, :3].argmax(1)

    def network() -> keras.Model:
        keras.utils.set_random_seed(1)
        layers = [keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.1), loss, metrics=["accuracy"])
        return model

    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.Synchronous(adaptive_batches=BATCHES),
    )
    with strategy.scope():
        model = network()
    before = [np.array(weight) for weight in model.get_weights()]
    history = model.fit(x, y, batch_size=batch, shuffle=False, verbose=0).history
    after, stats = model.get_weights(), strategy.stats()
    strategy.close()
    with tf.device(LOCAL):
        reference = network()
        reference.set_weights(before)
        expected = reference.fit(x, y, batch_size=BATCHES * batch, shuffle=False, verbose=0).history
    for weight, known, first in zip(after, reference.get_weights(), before, strict=True):
        moved = np.linalg.norm(known - first)
        assert np.linalg.norm(weight - known) <= 1e-5 * moved
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(history[name], expected[name], rtol=1e-5)
    assert stats.updates_applied == 21
    assert stats.worker_steps == (20 * BATCHES + 2,)
    assert stats.examples_seen == len(x)
