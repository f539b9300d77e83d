"""What is known of the batches of arrays before any is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from tfps.runtime.worker.visit import BatchClaim
from tfps.training.arrays import ResidentArrays

FLOATS = np.arange(24, dtype="float64").reshape(12, 2)
LABELS = np.arange(12)


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
        claim = BatchClaim(at, at, incarnation, goes_back=True)
        there, batch = source.fetch(source.arguments(order, 0), claim)
        assert there
        batches.append(batch)
    for found, expected in zip(batches, adapter.get_tf_dataset(), strict=True):
        tf.nest.assert_same_structure(found, expected)
        for one, two in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            np.testing.assert_array_equal(one, two)
