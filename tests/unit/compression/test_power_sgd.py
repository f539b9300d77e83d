"""Factors of matrices: bytes, what they leave, and that a warm start finds the best ones."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfps.compression import Identity, PowerSGD
from tfps.compression.codec import codec_problem
from tfps.compression.power_sgd import Matrix

SEED = tf.constant([3, 1], tf.int64)
LINE_ITEMS = 16

matrices = st.builds(Matrix, st.integers(1, 3), st.integers(3, 20), st.integers(3, 20))


def padded(codec: Matrix, matrix: np.ndarray) -> tf.Tensor:
    """As a push has it: filled up to a line."""
    vector = matrix.ravel()
    return tf.constant(np.pad(vector, [0, -len(vector) % LINE_ITEMS]), tf.float32)


@settings(max_examples=30)
@given(codec=matrices, seed=st.integers(0, 1000))
def test_bytes_are_as_many_as_said_and_less_is_left(codec: Matrix, seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(codec.rows, codec.columns))
    vector = padded(codec, matrix)
    data = codec.encode(vector, seed=SEED)
    assert (data.dtype, data.shape) == (tf.uint8, [codec.size_bytes(len(vector))])
    assert data.shape == [4 * codec.rank * (codec.rows + codec.columns)]
    left = (vector - codec.decode(data, len(vector))).numpy()
    assert np.square(left).sum() <= np.square(matrix).sum() * (1 + 1e-5)
    assert not left[matrix.size :].any()


@given(codec=matrices)
def test_a_matrix_of_so_low_a_rank_arrives(codec: Matrix) -> None:
    random = np.random.default_rng(codec.rows)
    low = random.normal(size=(codec.rows, codec.rank)) @ random.normal(
        size=(codec.rank, codec.columns)
    )
    vector = padded(codec, low)
    arrived = codec.decode(codec.encode(vector, seed=SEED), len(vector))
    np.testing.assert_allclose(arrived, vector, atol=1e-3)


def test_sizes_hold_in_a_graph() -> None:
    for shape in ((30, 8), (3, 3, 4, 16)):
        assert codec_problem(PowerSGD(2).for_shape(shape), int(np.prod(shape))) is None


def test_a_warm_start_finds_the_best_factors() -> None:
    codec, items = Matrix(2, 24, 16), 24 * 16
    matrix = np.random.default_rng(0).normal(size=(24, 16))
    sizes = np.linalg.svd(matrix, compute_uv=False)
    right = codec.draw(SEED)
    for _ in range(40):
        _, right = codec.factors(padded(codec, matrix), right)
    best = codec.product(*codec.factors(padded(codec, matrix), right), items)
    missing = np.square(matrix.ravel() - best.numpy()).sum()
    np.testing.assert_allclose(missing, np.square(sizes[2:]).sum(), rtol=1e-3)


def test_a_worker_begins_with_the_factor_of_its_gradient_before() -> None:
    codec = Matrix(1, 12, 8)
    memory, matrix = codec.memory, np.random.default_rng(1).normal(size=(12, 8))
    kept = tuple(tf.zeros(spec.shape, spec.dtype) for spec in memory.specs(96))
    arrived = np.zeros(96)
    for number in range(4):
        begin = kept[1] if number else codec.draw(SEED)
        _, expected = codec.factors(padded(codec, matrix) + kept[0], begin)
        data, kept = memory.code(padded(codec, matrix), kept, scale=1.0, seed=SEED)
        np.testing.assert_allclose(kept[1], expected, atol=1e-5)
        arrived += codec.decode(data, 96).numpy()
    np.testing.assert_allclose(arrived + kept[0], 4 * matrix.ravel(), atol=1e-4)


def test_a_gradient_of_zeros_does_not_stop_a_worker() -> None:
    codec = Matrix(1, 12, 8)
    memory, matrix = codec.memory, np.ones((12, 8))
    kept = tuple(tf.zeros(spec.shape, spec.dtype) for spec in memory.specs(96))
    _, kept = memory.code(tf.zeros([96]), kept, scale=1.0, seed=SEED)
    data, _ = memory.code(padded(codec, matrix), kept, scale=1.0, seed=SEED)
    np.testing.assert_allclose(codec.decode(data, 96), matrix.ravel(), atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_arrives_as_nan(value: float) -> None:
    codec, matrix = Matrix(2, 12, 8), np.ones((12, 8))
    matrix[3, 4] = value
    data = codec.encode(padded(codec, matrix), seed=SEED)
    assert np.isnan(codec.decode(data, 96).numpy()).all()


@pytest.mark.parametrize("shape", [(), (7,), (500,), (3, 3), (1, 100), (2, 2, 1)])
def test_what_would_not_become_smaller_goes_as_it_is(shape: tuple[int, ...]) -> None:
    assert PowerSGD(2).for_shape(shape) == Identity()


def test_the_last_axis_has_the_columns() -> None:
    assert PowerSGD(2).for_shape((3, 3, 4, 16)) == Matrix(2, 36, 16)
    assert repr(PowerSGD(2).for_shape((64, 16))) == "PowerSGD(rank=2)"
