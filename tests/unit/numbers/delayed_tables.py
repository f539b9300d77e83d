"""Tables whose rows lack one update, and the same of one process."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import BATCH, EXAMPLES, LABELS, LOCAL, assert_same, fit
from tests.unit.numbers.tables import IDS, Make, tables_model


def assert_rows_lack_one_update(strategy: tfps.ParameterServerStrategy, optimizer: Make) -> None:
    """Train with `pipeline_steps=1` as one process does that is late by one update."""
    with strategy.scope():
        model = tables_model(optimizer)
    begin = model.get_weights()
    fit(model, IDS, LABELS, epochs=1)
    found, stats = model.get_weights(), strategy.stats()
    steps = EXAMPLES // BATCH
    assert stats.gradient_staleness_updates == {0: 1, 1: steps - 1}
    assert stats.fallback_steps == 0
    # A table has 301 rows of 6 numbers; two of them would go as a whole in each step.
    assert stats.bytes_pushed < steps * sum(weight.nbytes for weight in begin)
    assert_same(found, _delayed_by_one(optimizer, begin))


def _delayed_by_one(optimizer: Make, begin: list[np.ndarray]) -> list[np.ndarray]:
    """The weights when each gradient is computed from the parameters of one update ago."""
    with tf.device(LOCAL):
        model = tables_model(optimizer)
        model.set_weights(begin)
        model.optimizer.build(model.trainable_variables)
        before = now = [tf.constant(weight) for weight in model.get_weights()]
        for first in range(0, EXAMPLES, BATCH):
            ids, labels = IDS[first : first + BATCH], LABELS[first : first + BATCH]
            mapping = list(zip(model.trainable_variables, before, strict=True))
            with keras.StatelessScope(state_mapping=mapping), tf.GradientTape() as tape:
                tape.watch(before)
                loss = model.compute_loss(x=ids, y=labels, y_pred=model(ids, training=True))
            gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, before)]
            model.optimizer.apply(gradients, model.trainable_variables)
            before, now = now, [tf.constant(weight) for weight in model.get_weights()]
        return model.get_weights()
