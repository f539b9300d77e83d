"""Bytes become the rows of several variables again, of neighbours alike and others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import tensorflow as tf
from hypothesis import given, settings

from tests.scaled_examples import scaled_examples
from tfps.compression import Cast, Quantize
from tfps.runtime.message.row_format import CodedRows, RowFormat, decode_all_rows, encode_all_rows

SEED = tf.constant([1, 2], tf.int64)
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
    formats = list(map(RowFormat, natives))
    data = encode_all_rows(formats, rows, seed=SEED)
    counts = [tf.constant(count, tf.int64) for _, count in of]
    found = decode_all_rows(data, formats, counts)
    assert [each.dtype for each in found] == [native.dtype for native in natives]
    for each, expected in zip(found, rows, strict=True):
        np.testing.assert_array_equal(each, expected)


@settings(max_examples=scaled_examples(12))
@given(
    st.lists(st.tuples(st.sampled_from([4, 70]), st.integers(0, 3)), min_size=1, max_size=5),
    st.sampled_from([None, Cast(), Cast("float16"), Quantize(8), Quantize(4)]),
)
def test_coded_rows_are_about_what_was_sent(of: list[tuple[int, int]], codec: Any) -> None:
    """Neighbours of one kind, some with a codec and some without, as one message."""
    random = np.random.default_rng(1)
    formats: list[RowFormat] = []
    for number, (width, _) in enumerate(of):
        native = SimpleNamespace(shape=tf.TensorShape([9, width]), dtype=tf.float32)
        is_plain = codec is None or number % 3 == 2
        formats.append(RowFormat(native) if is_plain else CodedRows(native, codec, "all"))
    rows = [tf.constant(random.normal(size=[n, w]).astype(np.float32)) for w, n in of]
    counts = [tf.constant(count, tf.int64) for _, count in of]

    @tf.function(
        input_signature=[[tf.TensorSpec([None, w], tf.float32) for w, _ in of]], autograph=False
    )
    def send(rows: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        data = encode_all_rows(formats, rows, seed=SEED)
        return data, decode_all_rows(data, formats, counts)

    data, found = send(rows)
    assert data.shape[0] == sum(n * f.size_bytes for f, (_, n) in zip(formats, of, strict=True))
    for each, expected, own in zip(found, rows, formats, strict=True):
        error = 0 if type(own) is RowFormat else 0.5
        np.testing.assert_allclose(each, expected, atol=error)
