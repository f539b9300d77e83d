"""The server that takes a raw variable, and the scope that decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tests.cluster.upstream.conftest import MakeStrategy

pytestmark = pytest.mark.timeout(180)


def _ps(index: int) -> str:
    return f"/job:ps/replica:0/task:{index}/device:CPU:0"


def _devices(variables: list[Any]) -> list[str]:
    return [variable.device for variable in variables]


def test_variables_go_round(make_strategy: MakeStrategy) -> None:
    strategy = make_strategy(ps=3)
    outside = tf.Variable(0.0)
    with strategy.scope():
        inside = [tf.Variable(float(value)) for value in range(4)]
    assert outside.device == "/job:chief/replica:0/task:0/device:CPU:0"
    assert _devices(inside) == [_ps(0), _ps(1), _ps(2), _ps(0)]
    assert [float(variable.numpy()) for variable in inside] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.repeats
def test_shards_go_round(make_strategy: MakeStrategy) -> None:
    """The other tests of them need no cluster: tests/unit/upstream/test_partitioning.py."""
    fixed = tf.distribute.experimental.partitioners.FixedShardsPartitioner(4)
    with make_strategy(fixed, ps=3).scope():
        variable = tf.Variable(lambda: tf.range(6), shape=(6,), dtype=tf.int32)
    assert _devices(variable.variables) == [_ps(0), _ps(1), _ps(2), _ps(0)]
    values = [shard.numpy().tolist() for shard in variable.variables]
    assert values == [[0, 1], [2, 3], [4], [5]]


@pytest.mark.repeats
def test_the_scope_wins_over_a_device(make_strategy: MakeStrategy) -> None:
    strategy = make_strategy(ps=3)
    variables = []
    with strategy.scope():
        for device in (_ps(1), _ps(0)):
            with tf.device(device):
                variables.append(tf.Variable(0.0))
    with tf.device(_ps(1)), strategy.scope():
        variables += [tf.Variable(0.0), tf.Variable(0.0)]
    assert _devices(variables) == [_ps(0), _ps(1), _ps(2), _ps(0)]


@pytest.mark.repeats
def test_a_variable_creator_wins_outside_the_scope_only(make_strategy: MakeStrategy) -> None:
    strategy = make_strategy(ps=3)
    names = []

    def on_server_1(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        names.append(kwargs["name"])
        reference = kwargs.get("colocate_with")
        with tf.device(_ps(1) if reference is None else reference.device):
            return next_creator(**kwargs)

    creator = tf.variable_creator_scope
    with creator(on_server_1):
        before = tf.Variable(0.0, name="before")
    with strategy.scope():
        with creator(on_server_1):
            within = tf.Variable(0.0, name="within")
        turns = [tf.Variable(0.0), tf.Variable(0.0)]
    with creator(on_server_1), strategy.scope():
        around = [tf.Variable(0.0, name="around"), tf.Variable(0.0, name="around")]
        with strategy.extended.colocate_vars_with(within):
            colocated = tf.Variable(0.0, name="colocated")
    assert before.device == _ps(1)
    assert _devices([within, *turns]) == [_ps(0), _ps(1), _ps(2)]
    assert _devices(around) == [_ps(1), _ps(1)]
    assert colocated.device == within.device == _ps(0)
    assert names == ["before", "within", "around", "around", "colocated"]


class TwoTables(tf.Module):
    """Embeddings in two variables, looked up by a function that can be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.even = tf.Variable([1.0, 3.0, 5.0])
        self.odd = tf.Variable([2.0, 4.0, 6.0])

    @tf.function(input_signature=[tf.TensorSpec([2], tf.int32, name="ids")])
    def look_up(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.compat.v1.nn.embedding_lookup([self.even, self.odd], ids)


def _gathers(nodes: Any) -> list[Any]:
    assert nodes
    assert not [node for node in nodes if node.op in ("Gather", "GatherV2")]
    return [node for node in nodes if node.op == "ResourceGather"]


@pytest.mark.repeats
def test_a_look_up_reads_rows_only(make_strategy: MakeStrategy, tmp_path: Path) -> None:
    """It does so in the function and in the SavedModel, where it is bound to no device."""
    with make_strategy(ps=3).scope():
        model = TwoTables()
    np.testing.assert_array_equal(model.look_up(tf.constant([4, 1])), [5.0, 2.0])
    assert _gathers(model.look_up.get_concrete_function().graph.as_graph_def().node)
    tf.saved_model.save(model, str(tmp_path), signatures=model.look_up)
    saved = SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    gathers = _gathers([node for function in functions for node in function.node_def])
    assert {node.device for node in gathers} == {""}
