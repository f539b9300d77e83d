"""A look-up in a split variable reads rows from every shard, never a shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.upstream.coordinators import coordinator_of
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)

SHARDS = 3


@pytest.fixture(scope="module")
def coordinator(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ClusterCoordinator]:
    split = tf.distribute.experimental.partitioners.FixedShardsPartitioner(SHARDS)
    with coordinator_of(cluster, "plain", split) as coordinator:
        yield coordinator


def _sparse(values: list[float]) -> tf.SparseTensor:
    return tf.SparseTensor([[0, 0], [0, 1], [1, 0], [2, 2]], values, [3, 3])


LOOK_UPS = {
    "dense": (
        lambda table: tf.nn.embedding_lookup(table, tf.constant([0, 3, 4])),
        [[1, 2], [7, 8], [9, 10]],
    ),
    "sparse": (
        lambda table: tf.nn.embedding_lookup_sparse(table, _sparse([0, 3, 4, 1]), None),
        [[4, 5], [9, 10], [3, 4]],
    ),
    "safe": (
        lambda table: tf.nn.safe_embedding_lookup_sparse(
            table, _sparse([0, -1, 4, 1]), _sparse([1.0, 1.0, -1.0, 1.0])
        ),
        [[1, 2], [0, 0], [3, 4]],
    ),
}


@pytest.mark.repeats
@pytest.mark.quick("dense")
@pytest.mark.parametrize("name", LOOK_UPS)
def test_look_up(name: str, coordinator: tfps.ClusterCoordinator) -> None:
    look_up, expected = LOOK_UPS[name]
    with coordinator.strategy.scope():
        table = tf.Variable(np.arange(1, 11, dtype="float32").reshape([5, 2]))
    assert len(table.variables) == SHARDS
    function = tf.function(lambda: look_up(table))
    result = coordinator.schedule(function)
    np.testing.assert_allclose(result.fetch(), expected)
    operations = function.get_concrete_function().graph.get_operations()
    kinds = Counter(operation.type for operation in operations)
    assert kinds["ResourceGather"] == SHARDS
    assert kinds["ReadVariableOp"] == 0
