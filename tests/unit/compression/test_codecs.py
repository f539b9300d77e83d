"""The promises of codecs: their bytes, what arrives on average, and that no NaN is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import check_message, raises
from tfps.compression import Cast, Codec, Identity, Quantize, TopK
from tfps.compression.codec import codec_problem
from tfps.compression.memory import keeps_state
from tfps.errors import ConfigError

UNBIASED = [Identity(), Cast("bfloat16"), Cast("float16"), *map(Quantize, (8, 4, 2))]
CONTRACTIVE = [Quantize(1), Quantize(1, block_items=7), TopK(0.01), TopK(0.3), TopK(1)]
EACH = [*UNBIASED, *CONTRACTIVE, Quantize(2, block_items=5)]
DRAWS = 150

codecs = st.sampled_from(EACH)
seeds = st.integers(0, 2**31)


@st.composite
def vectors(draw: Any) -> np.ndarray:
    items, scale = draw(st.integers(0, 700)), 10.0 ** draw(st.integers(-6, 3))
    values = np.random.default_rng(draw(seeds)).normal(size=items) * scale
    return values.astype(np.float32)


def sent(codec: Codec, vector: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Returns a vector as the receiver decodes it."""
    data = codec.encode(tf.constant(vector), seed=tf.constant([seed, 1], tf.int64))
    assert (data.dtype, data.shape) == (tf.uint8, [codec.size_bytes(len(vector))])
    return codec.decode(data, len(vector)).numpy()


@given(codec=codecs, vector=vectors(), seed=seeds)
def test_bytes_are_as_many_as_said(codec: Codec, vector: np.ndarray, seed: int) -> None:
    arrived = sent(codec, vector, seed=seed)
    assert (arrived.dtype.name, arrived.shape) == ("float32", vector.shape)
    np.testing.assert_array_equal(arrived, sent(codec, vector, seed=seed))


@pytest.mark.repeats
@pytest.mark.parametrize("codec", EACH, ids=repr)
def test_sizes_hold_in_a_graph(codec: Codec) -> None:
    for items in (0, 1, 255, 256, 257):
        assert codec_problem(codec, items) is None


@given(vector=vectors())
def test_identity_keeps_each_bit(vector: np.ndarray) -> None:
    assert sent(Identity(), vector).tobytes() == vector.tobytes()


@pytest.mark.quick("Quantize(bits=4*")
@pytest.mark.parametrize("codec", UNBIASED, ids=repr)
def test_unbiased_codecs_are_right_on_average(codec: Codec) -> None:
    assert not keeps_state(codec)
    vector = np.random.default_rng(3).normal(size=300).astype(np.float32) * 1e-4
    arrived = np.stack([sent(codec, vector, seed=seed) for seed in range(DRAWS)])
    arrived = arrived.astype(np.float64)
    spread = arrived.std(0)
    # A level that is hardly ever taken may not have been taken at all.
    bound = 5 * np.maximum(spread, np.median(spread)) / DRAWS**0.5 + 1e-6 * np.abs(vector)
    assert (np.abs(arrived.mean(0) - vector) <= bound).all()


@given(codec=st.sampled_from(CONTRACTIVE), vector=vectors())
def test_biased_codecs_leave_less_than_there_was(codec: Codec, vector: np.ndarray) -> None:
    assert keeps_state(codec)
    left = vector.astype(np.float64) - sent(codec, vector)
    whole = float(np.square(vector.astype(np.float64)).sum())
    assert np.square(left).sum() <= whole * (1 + 1e-6)
    if isinstance(codec, TopK) and len(vector):
        share = codec.size_bytes(len(vector)) / 8 / len(vector)
        assert np.square(left).sum() <= whole * (1 - share) + whole * 1e-6


@given(codec=st.sampled_from([Cast("bfloat16"), Cast("float16"), Quantize(8)]), vector=vectors())
def test_rounding_errors_are_bounded(codec: Codec, vector: np.ndarray) -> None:
    left = np.abs(vector - sent(codec, vector))
    if isinstance(codec, Cast):
        relative, least = (2**-7, 1e-38) if codec.dtype == "bfloat16" else (2**-10, 2**-24)
        assert (left <= np.maximum(np.abs(vector) * relative, least) * 1.001).all()
    else:
        assert (left <= np.abs(vector).max(initial=0) / 127 * 1.001).all()


@pytest.mark.parametrize("codec", EACH, ids=repr)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_arrive(codec: Codec, value: float) -> None:
    vector = np.linspace(-1, 1, 300, dtype=np.float32)
    vector[17] = value
    arrived = sent(codec, vector)
    np.testing.assert_array_equal(arrived[17], np.float32(value))
    blocks = getattr(codec, "block_items", 1)
    assert np.isfinite(arrived[-(300 % blocks or 1) :]).all()


@given(
    codec=st.sampled_from([Cast(), Cast("float16"), *map(Quantize, (8, 4, 2))]),
    number=st.integers(0, 4),
    items=st.sampled_from([3, 64, 257, 600]),
)
def test_a_row_is_coded_as_a_vector_as_long(codec: Any, number: int, items: int) -> None:
    rows = np.random.default_rng(items).normal(size=[number, items]).astype(np.float32)
    rows[1:2, 0] = np.inf
    seed = tf.constant([0, 1], tf.int64)
    data = codec.encode_rows(tf.constant(rows), seed=seed)
    assert (data.dtype, data.shape) == (tf.uint8, [number, codec.size_bytes(items)])
    arrived = codec.decode_rows(data, items).numpy()
    assert arrived.shape == rows.shape
    for one, row in zip(arrived, data, strict=True):
        np.testing.assert_array_equal(one, codec.decode(row, items))
    if number:
        np.testing.assert_array_equal(arrived[0], sent(codec, rows[0])[: len(arrived[0])])
    assert np.isfinite(arrived[2:]).all()  # what one row has is in no other


def test_float16_keeps_large_numbers_finite() -> None:
    assert sent(Cast("float16"), np.array([1e6, -1e6], np.float32)).tolist() == [65504.0, -65504.0]


def test_the_largest_numbers_go() -> None:
    vector = np.array([0, 3, -5, 1, 0, 2, 0, 0, 0, 0], np.float32)
    assert sent(TopK(0.2), vector).tolist() == [0, 3, -5, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("make", "options", "expected"),
    [
        (TopK, {"fraction": 0}, "above 0, up to 1"),
        (TopK, {"fraction": 1.5}, "above 0, up to 1"),
        (TopK, {"fraction": True}, "above 0, up to 1"),
        (TopK, {"fraction": float("nan")}, "above 0, up to 1"),
        (Quantize, {"bits": 3}, "8, 4, 2 or 1"),
        (Quantize, {"block_items": 0}, "1 or more"),
        (Cast, {"dtype": "int8"}, "'bfloat16' or 'float16'"),
    ],
)
def test_refusals(make: Any, options: dict[str, Any], expected: str) -> None:
    ((key, value),) = options.items()
    with raises(ConfigError, f"{key}: ", received=repr(value), remedy=expected):
        make(**options)


class Wrong:
    """A codec that does not keep to its sizes."""

    def __init__(self, *, says: Any = 8, makes: int = 8, items: int = 2) -> None:
        self.says, self.makes, self.items = says, makes, items

    def encode(self, vector: tf.Tensor, *, seed: tf.Tensor) -> tf.Tensor:
        return tf.zeros([self.makes], tf.uint8)

    def decode(self, data: tf.Tensor, items: int) -> tf.Tensor:
        return tf.zeros([self.items], tf.float32)

    def size_bytes(self, items: int) -> Any:
        return self.says


@pytest.mark.parametrize(
    ("codec", "method", "received", "expected"),
    [
        (Wrong(makes=9), "encode()", "uint8 tensor of shape (9,)", "8 bytes"),
        (Wrong(items=3), "decode()", "float32 tensor of shape (3,)", "2 items"),
        (Wrong(says=8.0), "size_bytes(2)", "8.0", "int"),
        (Wrong(says=-1), "size_bytes(2)", "-1", "number of bytes"),
    ],
)
def test_a_codec_that_does_not_keep_to_its_sizes(
    codec: Any, method: str, received: str, expected: str
) -> None:
    check_message(str(codec_problem(codec, 2)), method, received=received, remedy=expected)
