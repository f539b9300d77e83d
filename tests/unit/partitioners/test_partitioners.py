"""Partitioners: TensorFlow's numbers of shards, balance, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
import tensorflow as tf
from hypothesis import given

from tests.messages import raises
from tfps import partitioners
from tfps.errors import ConfigError
from tfps.partitioners import (
    Balanced,
    ByPath,
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
    Partitioner,
    RowModulo,
    RowShuffle,
    VariableSpec,
    Whole,
)

stock = tf.distribute.experimental.partitioners
SHAPES = st.lists(st.integers(1, 300), min_size=1, max_size=3).map(tuple)
SIZES = st.integers(1, 1 << 20)
COUNTS = st.integers(1, 9)


def _stock_shards(partitioner: Any, shape: tuple[int, ...]) -> int:
    counts = partitioner(tf.TensorShape(shape), tf.float32)
    assert set(counts[1:]) <= {1}
    return int(counts[0])


@given(shape=SHAPES, shards=COUNTS)
def test_fixed_shards_are_tensorflows(shape: tuple[int, ...], shards: int) -> None:
    ours = FixedShardsPartitioner(shards).divide(VariableSpec("v", shape), servers=3)
    assert ours.shards == _stock_shards(stock.FixedShardsPartitioner(shards), shape)


@given(shape=SHAPES, size=SIZES, most=COUNTS)
def test_smallest_shards_are_tensorflows(shape: tuple[int, ...], size: int, most: int) -> None:
    theirs = _stock_shards(stock.MinSizePartitioner(size, max_shards=most), shape)
    assert (
        MinSizePartitioner(size, most).divide(VariableSpec("v", shape), servers=3).shards == theirs
    )
    by_servers = MinSizePartitioner(size).divide(VariableSpec("v", shape), servers=most)
    assert by_servers.shards == theirs


@given(shape=SHAPES, size=SIZES, most=st.none() | COUNTS)
def test_largest_shards_are_tensorflows(
    shape: tuple[int, ...], size: int, most: int | None
) -> None:
    ours = MaxSizePartitioner(size, most).divide(VariableSpec("v", shape), servers=3)
    assert ours.shards == _stock_shards(stock.MaxSizePartitioner(size, max_shards=most), shape)


EVERY = [
    Balanced(),
    Balanced(min_shard_bytes=1),
    ByPath({"v": RowShuffle()}),
    FixedShardsPartitioner(3),
    MaxSizePartitioner(100),
    MinSizePartitioner(100),
    RowShuffle(),
    RowModulo(),
    Whole(),
]


@pytest.mark.parametrize("partitioner", EVERY, ids=repr)
@given(shape=st.lists(st.integers(0, 40), max_size=3).map(tuple), servers=COUNTS)
def test_shards_are_the_variable(
    partitioner: Partitioner, shape: tuple[int, ...], servers: int
) -> None:
    sharding = partitioner.divide(VariableSpec("v", shape), servers=servers)
    assert sharding.shards >= 1
    if sharding.shards == 1:
        assert sharding.shapes == (shape,)
    else:
        assert sum(part[0] for part in sharding.shapes) == shape[0]
        assert all(part[0] >= 1 and part[1:] == shape[1:] for part in sharding.shapes)
    assert f"{sharding.shards} shard" in str(sharding)


@given(shape=SHAPES, servers=COUNTS, size=SIZES)
def test_balanced_leaves_small_ones_whole_and_divides_the_others_evenly(
    shape: tuple[int, ...], servers: int, size: int
) -> None:
    variable = VariableSpec("v", shape)
    sharding = Balanced(min_shard_bytes=size).divide(variable, servers=servers)
    if sharding.shards > 1:
        assert variable.size_bytes >= 2 * size
        assert sharding.shards <= min(servers, shape[0])
        # Rounding to rows apart, none is smaller than asked for.
        assert min(math.prod(s) for s in sharding.shapes) * 4 >= size - variable.row_bytes


def test_rules_choose_by_path_in_their_order() -> None:
    partitioner = ByPath({"embedding/": RowModulo(), "^head/": FixedShardsPartitioner(2)})
    table = VariableSpec("model/embedding/embeddings", (100, 8))
    assert str(partitioner.divide(table, servers=4)).endswith("4 shards, modulo")
    assert partitioner.divide(VariableSpec("head/kernel", (8, 4)), servers=4).shards == 2
    assert partitioner.divide(VariableSpec("dense/kernel", (8, 4)), servers=4).shards == 1


@pytest.mark.parametrize(
    ("make", "key", "received", "expected"),
    [
        (lambda: FixedShardsPartitioner(0), "num_shards", "0", "whole number"),
        (lambda: MinSizePartitioner(0.5), "min_shard_bytes", "0.5", "whole number"),  # type: ignore[arg-type]
        (lambda: MinSizePartitioner(1, 0), "max_shards", "0", "whole number"),
        (lambda: MaxSizePartitioner(True), "max_shard_bytes", "True", "whole number"),
        (lambda: RowShuffle(0), "shards", "0", "whole number from 1, or None"),
        (lambda: RowModulo("2"), "shards", "'2'", "whole number"),  # type: ignore[arg-type]
        (lambda: Balanced(-1), "min_shard_bytes", "-1", "whole number"),
        (lambda: ByPath({"(": Whole()}), "'('", "regular expression", ""),
        (lambda: ByPath({"a": Whole}), "'a'", "<class", "RowShuffle()"),  # type: ignore[dict-item]
        (lambda: ByPath({}, otherwise=2), "otherwise", "2", "RowShuffle()"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, key: str, received: str, expected: str) -> None:
    with raises(ConfigError, f"{key}: received", received=received, remedy=expected) as caught:
        make()
    assert "\n" not in str(caught.value)  # one problem


def test_more_shards_than_rows_are_refused_where_they_were_asked_for() -> None:
    with raises(ConfigError, "bias: ", received="shards=4", remedy="partitioners.ByPath"):
        RowShuffle(4).divide(VariableSpec("bias", (3,)), servers=8)
    assert RowShuffle().divide(VariableSpec("bias", (3,)), servers=8).shards == 3


def test_all_of_them_are_known_by_name() -> None:
    assert all(hasattr(partitioners, name) for name in partitioners.__all__)
