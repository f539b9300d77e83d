"""Bytes become the rows of several variables again, of neighbours alike and others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import tensorflow as tf
from hypothesis import given

from tfps.runtime.server.server_tables import as_bytes, rows_in_turn

KINDS = [((2,), "float32"), ((3,), "float32"), ((2, 2), "float16"), ((4,), "uint8")]


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_each_variable_has_its_own(of: list[tuple[Any, int]], seed: int) -> None:
    random = np.random.default_rng(seed)
    natives = [
        SimpleNamespace(shape=tf.TensorShape([9, *shape]), dtype=tf.as_dtype(dtype))
        for (shape, dtype), _ in of
    ]
    rows = [
        tf.constant(random.integers(0, 9, [count, *shape]).astype(dtype))
        for (shape, dtype), count in of
    ]
    data = tf.concat([as_bytes(each) for each in rows], 0)
    counts = [tf.constant(count, tf.int64) for _, count in of]
    found = rows_in_turn(data, natives, counts)
    assert [each.dtype for each in found] == [native.dtype for native in natives]
    for each, expected in zip(found, rows, strict=True):
        np.testing.assert_array_equal(each, expected)
