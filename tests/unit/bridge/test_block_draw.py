"""Large variables are drawn by blocks: the same numbers however they are divided."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.unit.optimizers.server import DEVICE, LocalServer
from tfps.bridge.variables.block_draw import BlockDraw, can_draw_blocks, take_seed
from tfps.bridge.variables.shards import join_by_rule
from tfps.partitioners.row_rule import Contiguous, Modulo, RowRule, ShuffledRows, rows_per_shard

SHAPE = (1000, 7)
INITIALIZERS = {
    "zeros": keras.initializers.Zeros(),
    "constant": keras.initializers.Constant(0.5),
    "matrix": keras.initializers.Constant(np.random.default_rng(0).normal(size=SHAPE)),
    "column": keras.initializers.Constant(np.arange(1000.0)[:, None]),
    "row": keras.initializers.Constant(np.arange(7.0)),
    "one row": keras.initializers.Constant(np.arange(7.0)[None]),
    "uniform": keras.initializers.RandomUniform(-1, 1, seed=1),
    "normal": keras.initializers.RandomNormal(2.0, 0.5, seed=2),
    "truncated": keras.initializers.TruncatedNormal(0.0, 0.1, seed=3),
    "glorot": keras.initializers.GlorotUniform(seed=4),
    "he": keras.initializers.HeNormal(seed=5),
    "scaling": keras.initializers.VarianceScaling(3.0, "fan_out", "untruncated_normal", seed=6),
}


def _drawn(initializer: Any, rule: RowRule, *, block_bytes: int = 17 * 7 * 4) -> np.ndarray:
    """The whole variable, from the shards of a server."""
    draw = BlockDraw(initializer, take_seed(initializer), SHAPE, "float32", block_bytes)
    storage, parts = LocalServer().storage, []
    for shard, rows in enumerate(rows_per_shard(rule)):
        native = storage.create_variable(draw.begin(rows), device=DEVICE)
        draw.fill(native, rule=rule, shard=shard)
        parts.append(native.read_value())
    return join_by_rule(parts, rule).numpy()


# Each way to draw.
@pytest.mark.rare
@pytest.mark.quick("constant", "uniform")
@pytest.mark.parametrize("name", INITIALIZERS)
def test_values_do_not_depend_on_the_division(name: str) -> None:
    initializer = INITIALIZERS[name]
    whole = _drawn(initializer, Contiguous(1000, 1))
    for rule in (Contiguous(1000, 4), Modulo(1000, 3), ShuffledRows(1000, 2)):
        np.testing.assert_array_equal(_drawn(initializer, rule), whole)


@pytest.mark.quick("row")
@pytest.mark.parametrize("name", ["constant", "matrix", "column", "row", "one row"])
def test_constants_are_what_keras_makes_of_them(name: str) -> None:
    """A table that was trained before begins as it ended."""
    expected = INITIALIZERS[name](SHAPE)
    np.testing.assert_array_equal(_drawn(INITIALIZERS[name], ShuffledRows(1000, 3)), expected)


@pytest.mark.repeats
@pytest.mark.parametrize("name", INITIALIZERS)
def test_values_are_spread_like_those_of_keras(name: str) -> None:
    found = _drawn(INITIALIZERS[name], Modulo(1000, 2))
    expected = np.asarray(INITIALIZERS[name](SHAPE))
    spread = expected.std()
    assert abs(found.mean() - expected.mean()) <= 0.1 * spread
    assert found.std() == pytest.approx(spread, rel=0.05)
    if spread:
        assert len(np.unique(found)) > 0.99 * len(np.unique(expected))  # no block is repeated
        assert np.abs(found).max() <= 1.3 * np.abs(expected).max()


def test_a_generator_goes_on_from_variable_to_variable() -> None:
    keras.utils.set_random_seed(0)
    initializer = keras.initializers.RandomUniform(seed=keras.random.SeedGenerator(3))
    one, other = (_drawn(initializer, Contiguous(1000, 2)) for _ in range(2))
    assert not np.array_equal(one, other)


class Own(keras.initializers.GlorotUniform):
    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return super().__call__(shape, dtype) * 2


@pytest.mark.parametrize(
    "initializer",
    [keras.initializers.Orthogonal(), keras.initializers.Identity(), Own(), lambda *_, **__: None],
)
def test_what_needs_the_whole_variable(initializer: Any) -> None:
    assert not can_draw_blocks(initializer)
