"""The facts about batches of arrays that are known before any is made."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps.bridge.keras_private import ArrayDataAdapter
from tfps.runtime.worker.closure_run import BatchClaim
from tfps.training.input.arrays import ResidentArrays

FLOATS = np.arange(24, dtype="float64").reshape(12, 2)
LABELS = np.arange(12)


@pytest.mark.quick("x y-5", "weights-12", "dict and list-5", "other types-4")
@pytest.mark.parametrize("batch_size", [4, 5, 12, 20])
@pytest.mark.parametrize(
    "arguments",
    [
        (FLOATS,),
        (FLOATS, LABELS),
        (FLOATS.astype("float32"), LABELS.astype("int32"), np.ones(12)),
        ({"a": FLOATS, "b": LABELS}, [LABELS, FLOATS]),
        ((FLOATS, tf.constant(LABELS)),),
        ([FLOATS, FLOATS], tf.constant(FLOATS, tf.float16)),
        (FLOATS > 3, FLOATS.astype("uint8")),
    ],
    ids=["x", "x y", "weights", "dict and list", "tuple", "list", "other types"],
)
def test_batches_are_those_of_keras(arguments: tuple[Any, ...], batch_size: int) -> None:
    adapter = ArrayDataAdapter(*arguments, batch_size=batch_size)
    source = ResidentArrays(adapter)
    assert source.batch_spec == adapter.get_tf_dataset().element_spec
    order = source.new_pass()
    batches = []
    for position in range(adapter.num_batches):
        at, incarnation = (tf.constant(number, tf.int64) for number in (position, 1))
        claim = BatchClaim(at, at, incarnation, returns_ticket=True)
        there, batch = source.fetch(source.make_arguments(order, 0), claim)
        assert there
        batches.append(batch)
    for found, expected in zip(batches, adapter.get_tf_dataset(), strict=True):
        tf.nest.assert_same_structure(found, expected)
        for one, two in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.quick("10-True", "12-batch")
@pytest.mark.parametrize("shuffle", [True, False, "batch"])
@pytest.mark.parametrize("examples", [12, 10])
def test_an_order_that_is_drawn_ahead_is_that_of_the_next_pass(
    shuffle: bool | str, examples: int
) -> None:
    keras.utils.set_random_seed(1)
    adapter = ArrayDataAdapter(LABELS[:examples], batch_size=4, shuffle=shuffle)
    source = ResidentArrays(adapter)
    expected = adapter.get_tf_dataset()
    for _ in range(3):
        source.new_pass()  # Keras throws most away
        batches = [tf.nest.flatten(batch)[0] for batch in expected]
        order = source.new_pass().indices
        np.testing.assert_array_equal(LABELS[order], np.concatenate(batches))
        for _ in range(2):
            source.orders.draw_ahead()
