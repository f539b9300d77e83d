"""Batches cut into parts for the devices of a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tfps.runtime.program.examples import (
    compute_weighted_mean,
    compute_weighted_sum,
    concat_examples,
    count_examples,
    merge_gradients,
    split_batch,
)


def rows_of(parts: list[Any], shares: list[tf.Tensor]) -> list[float]:
    return [x for part, share in zip(parts, shares, strict=True) if share > 0 for x in part.numpy()]


@given(examples=st.integers(1, 20), count=st.integers(2, 5))
def test_parts_hold_each_example_once(examples: int, count: int) -> None:
    batch = tf.range(examples, dtype=tf.float32)
    parts, shares = split_batch(batch, count)
    assert rows_of(parts, shares) == list(range(examples))
    assert sum(float(share) for share in shares) == pytest.approx(count)
    sizes = [len(p) for p, s in zip(parts, shares, strict=True) if s > 0]
    assert max(sizes) - min(sizes) <= 1
    # The mean of the parts' means, weighted by shares, is the mean of all.
    means = [tf.reduce_mean(part) for part in parts]
    assert float(compute_weighted_mean(means, shares)) == pytest.approx(
        (examples - 1) / 2, rel=1e-6
    )


def test_lengths_that_are_known_stay_known() -> None:
    shapes = []

    @tf.function
    def trace(even: tf.Tensor, odd: tf.Tensor, unknown: tf.Tensor) -> None:
        for component in (even, odd, unknown):
            shapes.append([part.shape.as_list() for part in split_batch(component, 2)[0]])

    trace.get_concrete_function(
        tf.TensorSpec([8, 3]), tf.TensorSpec([7, 3]), tf.TensorSpec([None, 3])
    )
    assert shapes == [[[4, 3], [4, 3]], [[4, 3], [3, 3]], [[None, 3], [None, 3]]]


def test_every_kind_of_component() -> None:
    batch = {
        "dense": tf.reshape(tf.range(6.0), [3, 2]),
        "ragged": tf.ragged.constant([[1], [2, 3], []]),
        "sparse": tf.sparse.from_dense([[0, 1], [2, 0], [0, 3]]),
        "scalar": tf.constant(5),
        "nothing": None,
    }
    parts, shares = split_batch(batch, 2)
    assert [float(share) for share in shares] == pytest.approx([4 / 3, 2 / 3])
    assert [part["ragged"].to_list() for part in parts] == [[[1], [2, 3]], [[]]]
    dense = [tf.sparse.to_dense(part["sparse"]).numpy().tolist() for part in parts]
    assert dense == [[[0, 1], [2, 0]], [[0, 3]]]
    assert [int(part["scalar"]) for part in parts] == [5, 5]
    assert [part["nothing"] for part in parts] == [None, None]
    for name in ("dense", "ragged", "sparse"):
        whole = concat_examples([part[name] for part in parts])
        assert int(count_examples(whole)) == 3


def test_a_part_without_a_share_counts_nothing() -> None:
    parts, shares = split_batch(tf.constant([2.0]), 2)
    assert [part.numpy().tolist() for part in parts] == [[2.0], [2.0]]
    assert [float(share) for share in shares] == [2.0, 0.0]
    values = [tf.constant(3.0), tf.constant(np.nan)]
    assert float(compute_weighted_sum(values, shares)) == 6.0


def test_gradients_of_one_device_stay_as_they_are() -> None:
    gradient = tf.constant([1.0, 2.0])
    assert merge_gradients([[gradient]], (), variables=[None])[0] is gradient
