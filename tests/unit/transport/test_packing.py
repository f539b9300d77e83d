"""Tensors survive a payload bit for bit, whatever their dtypes and shapes."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings

from tests.messages import raises
from tests.scaled_examples import scaled_examples
from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.transport.layout import Layout
from tfps.transport.packing import Segments, pack, unpack

DTYPES = sorted(ITEM_BYTES)
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def _random(dtype: str, shape: tuple[int, ...], seed: int) -> tf.Tensor:
    """Any bits, so also infinities, subnormal numbers and NaN."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return tf.constant(random.integers(0, 2, size=shape).astype(bool))
    numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
    bits = random.bytes(int(np.prod(shape, dtype=int)) * ITEM_BYTES[dtype])
    return tf.constant(np.frombuffer(bits, numpy_dtype).reshape(shape), dtype)


def _bits(tensor: tf.Tensor) -> bytes:
    return bytes(tensor.numpy().tobytes())


def _check(entries: list[tuple[str, str, tuple[int, ...]]]) -> None:
    layout = Layout.from_entries(entries)
    tensors = {
        name: _random(dtype, shape, seed) for seed, (name, dtype, shape) in enumerate(entries)
    }
    payload = pack(layout, tensors)
    assert payload.dtype == tf.uint8
    assert payload.shape == [layout.size_bytes]
    found = unpack(layout, payload)
    assert set(found) == set(tensors)
    for name, dtype, shape in entries:
        assert found[name].dtype == dtype
        assert found[name].shape == shape
        assert _bits(found[name]) == _bits(tensors[name]), name


def _lines(segments: Segments) -> bytes:
    """The bytes on the wire if the tensors are sent one after the other."""
    arrays = [tensor.numpy() for tensor in segments.tensors]
    return b"".join(a.tobytes().ljust(max(-(-a.nbytes // 64), 1) * 64, b"\0") for a in arrays)


@settings(max_examples=scaled_examples(40))
@given(entries=st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=12))
def test_segments_are_the_bytes_of_the_payload(entries: list[tuple[str, tuple[int, ...]]]) -> None:
    layout = Layout.from_entries([(f"tensor {k}", *entry) for k, entry in enumerate(entries)])
    tensors = {s[0]: _random(s[1], s[2], k) for k, s in enumerate(_entries_of(layout))}
    segments = Segments.pack(layout, tensors)
    assert (
        _lines(segments)
        == _bits(segments.join_with(tf.zeros([0], tf.uint8)))
        == _bits(pack(layout, tensors))
    )


def test_segments_have_the_dtypes_and_sizes_of_the_layout() -> None:
    layout = Layout.from_entries([("mean", "float32", (2,)), ("flags", "bool", (1, 1))])
    mean, flags = tf.constant([1.5, 2.5], tf.float64), tf.constant([True])
    segments = Segments.pack(layout, {"flags": flags, "mean": mean})
    assert [tensor.dtype for tensor in segments.tensors] == [tf.float32, tf.bool]
    assert [tuple(tensor.shape) for tensor in segments.tensors] == [(2,), (1, 1)]
    with pytest.raises(tf.errors.InvalidArgumentError):
        Segments.pack(layout, {"flags": tf.constant([True, False]), "mean": mean})


def test_segments_that_fit_are_taken_as_they_are() -> None:
    layout = Layout.from_entries([("kernel", "float32", (2, 3)), ("bias", "float32", (3,))])
    with tf.Graph().as_default() as graph:
        tensors = {"bias": tf.zeros([3]), "kernel": tf.zeros([2, 3])}
        operations = len(graph.get_operations())
        segments = Segments.pack(layout, tensors)
        assert list(segments.tensors) == [tensors["kernel"], tensors["bias"]]
        assert len(graph.get_operations()) == operations


@settings(max_examples=scaled_examples(40))
@given(entries=st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=12))
def test_roundtrip(entries: list[tuple[str, tuple[int, ...]]]) -> None:
    _check([(f"tensor {k}", dtype, shape) for k, (dtype, shape) in enumerate(entries)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("others", [[], [("other", "float32", (3,))]])
def test_each_dtype_alone_and_beside_another(dtype: str, others: list[Any]) -> None:
    shapes = [(), (0,), (1,), (16,), (17,), (2, 0, 3), (5, 7)]
    _check([*((f"{shape}", dtype, shape) for shape in shapes), *others])


def test_many_segments() -> None:
    _check([(f"v{k}", DTYPES[k % len(DTYPES)], (k % 7, 3)) for k in range(200)])


def test_in_a_traced_function_shapes_are_known() -> None:
    layout = Layout.from_entries(
        [("a", "float32", (2, 3)), ("b", "bfloat16", (5,)), ("c", "bool", ())]
    )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.uint8)])
    def again(payload: tf.Tensor) -> tf.Tensor:
        tensors = unpack(layout, payload)
        assert {name: tuple(t.shape) for name, t in tensors.items()} == {
            "a": (2, 3), "b": (5,), "c": (),
        }  # fmt: skip
        return pack(layout, tensors)

    payload = pack(layout, {n: _random(d, s, 1) for n, d, s in _entries_of(layout)})
    assert _bits(again(payload)) == _bits(payload)


def _entries_of(layout: Layout) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(s.name, s.dtype, s.shape) for block in layout.blocks for s in block.segments]


def test_values_are_cast_to_the_layout() -> None:
    layout = Layout.from_entries([("mean", "float32", (2,)), ("flag", "bool", ())])
    payload = pack(layout, {"mean": tf.constant([1.5, 2.5], tf.float64), "flag": tf.constant(True)})
    found = unpack(layout, payload)
    assert found["mean"].numpy().tolist() == [1.5, 2.5]
    assert found["flag"].numpy()


def test_a_payload_of_another_size_is_refused() -> None:
    layout = Layout.from_entries([("a", "float32", (2, 3)), ("b", "int64", (5,))])
    short = tf.zeros([layout.size_bytes - 64], tf.uint8)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        unpack(layout, short)


def test_a_tensor_of_another_size_is_refused() -> None:
    layout = Layout.from_entries([("a", "float32", (2, 3))])
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        pack(layout, {"a": tf.zeros([7])})


def test_a_missing_tensor_is_named() -> None:
    with raises(KeyError, "kernel"):
        pack(Layout.from_entries([("kernel", "float32", ())]), {})
