"""Partitioners of TensorFlow and of tfps choose the rule that divides a variable."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.messages import raises
from tfps import partitioners
from tfps.errors import ConfigError
from tfps.partitioners import Contiguous, Modulo, VariableSpec
from tfps.strategy.partitioning import Partitioning, to_raw_partitioner

STOCK = tf.distribute.experimental.partitioners
KERNEL = VariableSpec("dense/kernel", (100, 8))


def _rule(partitioner: Any, variable: VariableSpec = KERNEL, *, is_trained: bool = True) -> Any:
    sharding = Partitioning(partitioner, servers=4).sharding(variable, is_trained=is_trained)
    return sharding.rule


def test_both_kinds_and_none() -> None:
    assert _rule(None) == Contiguous(100, 1)
    assert _rule(STOCK.FixedShardsPartitioner(3)) == Contiguous(100, 3)
    assert _rule(STOCK.MaxSizePartitioner(400)) == Contiguous(100, 9)
    assert _rule(partitioners.RowModulo()) == Modulo(100, 4)
    assert _rule(lambda shape, dtype: [dtype.size, 1]) == Contiguous(100, 4)


def test_more_shards_than_rows_are_as_many_as_rows_in_tensorflow() -> None:
    assert _rule(STOCK.FixedShardsPartitioner(500)) == Contiguous(100, 100)


@pytest.mark.parametrize(
    "partitioner", [STOCK.FixedShardsPartitioner(3), partitioners.RowShuffle()]
)
def test_what_stays_whole(partitioner: Any) -> None:
    assert _rule(partitioner, is_trained=False).shards == 1
    assert _rule(partitioner, VariableSpec("scale", ())).shards == 1
    assert _rule(partitioner, VariableSpec("nothing", (0, 3))).shards == 1


@pytest.mark.parametrize("counts", [[1, 2], [0, 1], []])
def test_other_axes_are_refused(counts: list[int]) -> None:
    with raises(
        ConfigError,
        "variable_partitioner: ",
        received=f"received {counts} from ",
        remedy="only the first axis",
    ):
        _rule(lambda shape, dtype: counts)


def test_raw_variables_are_divided_into_neighbouring_rows() -> None:
    counts = to_raw_partitioner(partitioners.RowShuffle(), servers=4)
    assert counts(shape=tf.TensorShape([100, 8]), dtype=tf.float32) == [4, 1]
    stock = STOCK.FixedShardsPartitioner(3)
    assert to_raw_partitioner(stock, servers=4) is stock
    assert to_raw_partitioner(None, servers=4) is None
