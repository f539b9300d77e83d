"""Raw variables that a partitioner splits, aggregated, colocated and restored.

On a cluster: `test_shards_go_round` in tests/cluster/upstream/test_placement.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.upstream.conftest import MakeStrategy

partitioners = tf.distribute.experimental.partitioners
SUM = tf.VariableAggregation.SUM


def _is_split(variable: Any) -> bool:
    assert hasattr(variable, "variables") != isinstance(variable, tf.Variable)
    return type(variable).__name__ == "ShardedVariable"


def _check_shards(
    strategy: tfps.ParameterServerStrategy, variable: Any, expected: list[Any]
) -> None:
    """The values of the shards, which go round the two servers."""
    assert _is_split(variable)
    servers = strategy.runtime.topology.servers
    for index, (shard, values) in enumerate(zip(variable.variables, expected, strict=True)):
        assert shard.device == servers[index % 2]
        np.testing.assert_array_equal(shard.numpy(), values)


def test_nothing_is_split_without_a_partitioner(make_strategy: MakeStrategy) -> None:
    strategy = make_strategy()
    with strategy.scope():
        variable = tf.Variable([0, 1, 2, 3])
    assert not _is_split(variable)
    np.testing.assert_array_equal(variable.numpy(), [0, 1, 2, 3])


def test_rows_are_split(make_strategy: MakeStrategy) -> None:
    strategy = make_strategy(partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        odd, even = (
            tf.Variable(
                lambda shape=shape: tf.reshape(tf.range(np.prod(shape), dtype=tf.int64), shape),
                shape=shape,
                dtype=tf.int64,
            )
            for shape in ((5, 2), (6, 1))
        )
    _check_shards(strategy, odd, [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9]]])
    _check_shards(strategy, even, [[[0], [1], [2]], [[3], [4], [5]]])


@pytest.mark.parametrize("shards", [1, 2])
def test_aggregation(shards: int, make_strategy: MakeStrategy) -> None:
    """A worker of this cluster has one replica, whose value is the sum."""
    strategy = make_strategy(partitioners.FixedShardsPartitioner(2) if shards == 2 else None)
    strategy.extended._allow_run_without_coordinator = True
    with strategy.scope():
        total = tf.Variable([0.0] * 8, aggregation=SUM)
    assert _is_split(total) == (shards == 2)

    def replica() -> None:
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        first = tf.reshape(tf.cast(index + 10, tf.float32), [1])
        total.assign(tf.concat([first, tf.range(1.0, 8.0)], 0))

    strategy.run(replica)
    expected = [10.0, *range(1, 8)]
    np.testing.assert_array_equal(tf.convert_to_tensor(total), expected)
    if shards == 2:
        _check_shards(strategy, total, [expected[:4], expected[4:]])


@pytest.mark.parametrize(
    ("size", "parts"),
    [(10, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]), (3, [[0], [1], [2]])],
    ids=["uneven", "fewer rows than shards"],
)
def test_plain_initial_values_are_split(
    size: int, parts: list[list[int]], make_strategy: MakeStrategy
) -> None:
    strategy = make_strategy(partitioners.FixedShardsPartitioner(4))
    with strategy.scope():
        variable = tf.Variable(list(range(size)))
    _check_shards(strategy, variable, parts)


def test_a_partitioner_may_leave_variables_whole(make_strategy: MakeStrategy) -> None:
    keep = partitioners.MinSizePartitioner(min_shard_bytes=64 << 20, max_shards=2)
    strategy = make_strategy(keep)
    with strategy.scope():
        late = tf.Variable(lambda: tf.zeros([10], tf.int64), shape=(10,), dtype=tf.int64)
        plain = tf.Variable(list(range(10)))
    for variable, server in zip((late, plain), strategy.runtime.topology.servers, strict=True):
        assert not _is_split(variable)
        assert variable.device == server
    np.testing.assert_array_equal(late.numpy(), [0] * 10)
    np.testing.assert_array_equal(plain.numpy(), range(10))


def test_what_is_colocated_stays_whole(make_strategy: MakeStrategy) -> None:
    strategy = make_strategy(partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        split = tf.Variable([0, 1, 2, 3])
        with strategy.extended.colocate_vars_with(split.variables[1]):
            beside = tf.Variable([4, 5])
    assert _is_split(split)
    assert not _is_split(beside)
    assert beside.device == split.variables[1].device
    np.testing.assert_array_equal(beside.numpy(), [4, 5])


def test_an_initializer_may_make_its_part_only(make_strategy: MakeStrategy) -> None:
    asked = []

    def identity(partition_shape: Any = None, partition_offset: Any = None) -> tf.Tensor:
        assert partition_shape is not None
        asked.append(tuple(int(size) for size in partition_shape))
        return tf.slice(tf.eye(4, dtype=tf.int64), partition_offset, partition_shape)

    strategy = make_strategy(partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        variable = tf.Variable(identity, shape=(4, 4), dtype=tf.int64)
    _check_shards(strategy, variable, [np.eye(4)[:2], np.eye(4)[2:]])
    assert set(asked) == {(2, 4)}


@pytest.mark.parametrize("known", [{"dtype": tf.int64}, {"shape": (4,)}, {}], ids=str)
def test_shape_and_dtype_may_be_found_out(
    known: dict[str, Any], make_strategy: MakeStrategy
) -> None:
    strategy = make_strategy(partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        variable = tf.Variable(lambda: tf.range(4, dtype=tf.int64), **known)
    _check_shards(strategy, variable, [[0, 1], [2, 3]])
    assert variable.dtype == tf.int64


@pytest.mark.parametrize("shards", [None, [], [0, 1, 1], [2, 2, 1]], ids=str)
def test_a_partitioner_with_wrong_shards(shards: Any, make_strategy: MakeStrategy) -> None:
    strategy = make_strategy(lambda shape, dtype: shards)
    with strategy.scope(), raises(ValueError, "variable_partitioner"):
        tf.Variable([[[0, 1], [2, 3]], [[0, 1], [2, 3]]])


def test_variables_may_be_made_in_a_function(make_strategy: MakeStrategy) -> None:
    made: list[Any] = []

    @tf.function
    def make() -> None:
        if not made:
            made.append(tf.Variable([[1.0, 0.0], [0.0, 1.0]]))
            made.append(tf.Variable(lambda: tf.eye(2)))
            made.append(tf.Variable(lambda: tf.eye(2), shape=(2, 2), dtype=tf.float32))

    strategy = make_strategy(partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        make()
    assert len(made) == 3
    for variable in made:
        _check_shards(strategy, variable, [[[1.0, 0.0]], [[0.0, 1.0]]])


class Weights(tf.Module):
    """Makes its variable when it is asked to."""

    def build(self) -> None:
        self.weight = tf.Variable(tf.ones([4]), name="weight")


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("order", ["build, restore", "restore, build"])
def test_checkpoints_know_no_shards(
    order: str, shards: int, make_strategy: MakeStrategy, tmp_path: Path
) -> None:
    strategy = make_strategy(partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        saved = Weights()
        saved.build()
        saved.weight.assign([1.0, 2.0, 3.0, 4.0])
        path = tf.train.Checkpoint(model=saved).write(str(tmp_path / "checkpoint"))
    strategy = make_strategy(partitioners.FixedShardsPartitioner(shards))
    with strategy.scope():
        restored = Weights()
        steps: dict[str, Callable[[], Any]] = {
            "build": restored.build,
            "restore": lambda: tf.train.Checkpoint(model=restored).restore(path),
        }
        for step in order.split(", "):
            steps[step]()
    assert _is_split(restored.weight)
    values = [shard.numpy().tolist() for shard in restored.weight.variables]
    assert values == np.arange(1.0, 5.0).reshape([shards, -1]).tolist()
