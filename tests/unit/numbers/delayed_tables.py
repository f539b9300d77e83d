"""Tables whose rows lack one update, and the same training in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.unit.numbers.collections_model import dataset, recommender
from tests.unit.numbers.comparison import BATCH, EXAMPLES, LABELS, LOCAL, assert_same
from tests.unit.numbers.tables import IDS, Make, tables_model


def assert_rows_lack_one_update(strategy: tfps.ParameterServerStrategy, optimizer: Make) -> None:
    """Train with `pipeline_steps=1` as one process does that is late by one update."""
    batches = tf.data.Dataset.from_tensor_slices((IDS, LABELS)).batch(BATCH)
    _assert_one_is_lacking(strategy, lambda: tables_model(optimizer), batches)


def assert_a_collection_lacks_one_update(
    strategy: tfps.ParameterServerStrategy, optimizer: Make
) -> None:
    """Assert that a collection lacks one update, with ids of every form and with weights."""
    _assert_one_is_lacking(strategy, lambda: recommender(optimizer), dataset())


def _assert_one_is_lacking(
    strategy: tfps.ParameterServerStrategy,
    make: Callable[[], keras.Model],
    batches: tf.data.Dataset,
) -> None:
    with strategy.scope():
        model = make()
    begin = model.get_weights()
    model.fit(batches, shuffle=False, verbose=0)
    found, stats = model.get_weights(), strategy.stats()
    steps = EXAMPLES // BATCH
    assert stats.gradient_staleness_updates == {0: 1, 1: steps - 1}
    assert stats.fallback_steps == 0
    # Tables have 301 rows; of some of them all would go in each step.
    assert stats.bytes_pushed < steps * sum(weight.nbytes for weight in begin)
    with tf.device(LOCAL):
        assert_same(found, _delayed_by_one(make(), begin, batches))


def _delayed_by_one(
    model: keras.Model, begin: list[np.ndarray], batches: Iterable[Any]
) -> list[np.ndarray]:
    """Return the weights if each gradient comes from the parameters of one update ago."""
    model.set_weights(begin)
    model.optimizer.build(model.trainable_variables)
    before = now = [tf.constant(weight) for weight in model.get_weights()]
    for x, labels in batches:
        mapping = list(zip(model.trainable_variables, before, strict=True))
        with keras.StatelessScope(state_mapping=mapping), tf.GradientTape() as tape:
            tape.watch(before)
            loss = model.compute_loss(x=x, y=labels, y_pred=model(x, training=True))
        gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, before)]
        model.optimizer.apply(gradients, model.trainable_variables)
        before, now = now, [tf.constant(weight) for weight in model.get_weights()]
    weights: list[np.ndarray] = model.get_weights()
    return weights
