"""The graph says which of its functions run on one thread."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.transport.one_thread import CONTROL_FLOW, run_on_one_thread, suits_one_thread

NUMBER = [tf.TensorSpec([], tf.int64)]


def _graph(function: Any) -> tuple[tf.compat.v1.GraphDef, str]:
    """One with two functions that are called, and the name of the first."""
    other = tf.function(lambda x: tf.cond(x > 2, lambda: x, lambda: -x), NUMBER, autograph=False)
    with tf.Graph().as_default() as graph:
        concrete = function.get_concrete_function()
        number = concrete(tf.constant(3, tf.int64))
        other.get_concrete_function()(number)
    return graph.as_graph_def(), concrete.function_def.signature.name


@tf.function(input_signature=NUMBER, autograph=False)
def _conditional(number: tf.Tensor) -> tf.Tensor:
    def loop() -> tf.Tensor:
        return tf.while_loop(lambda x: x < 9, lambda x: x + 1, [number])[0]

    return tf.cond(number > 2, loop, lambda: number)


@tf.function(input_signature=NUMBER, autograph=False)
def _gated(number: tf.Tensor) -> tf.Tensor:
    queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.int64], shapes=[[]], shared_name="q")

    def take() -> tf.Tensor:
        (found,) = tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.int64])
        return tf.ensure_shape(found, [])

    return tf.switch_case(tf.cast(number, tf.int32), [lambda: number, take])


def test_it_and_what_it_calls_run_on_one_thread_and_nothing_else_does() -> None:
    graph, name = _graph(_conditional)
    assert suits_one_thread(_conditional.get_concrete_function())
    run_on_one_thread(graph, name)
    executors = {
        node.attr["f"].func.name: node.attr["executor_type"].s
        for node in graph.node
        if node.op in ("PartitionedCall", "StatefulPartitionedCall")
    }
    assert executors.pop(name) == b"SINGLE_THREADED_EXECUTOR"
    assert set(executors.values()) == {b""}
    lowered = {
        function.signature.name: node.attr["_lower_using_switch_merge"].b
        for function in graph.library.function
        for node in function.node_def
        if node.op in CONTROL_FLOW
    }
    (other,) = executors
    assert {where for where, is_lowered in lowered.items() if is_lowered} == {other}
    assert len(lowered) == 3  # the condition, the loop in its branch, and the other's condition
    kept = {f.signature.name for f in graph.library.function if f.attr["_noinline"].b}
    assert kept == {name}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        (end,) = tf.import_graph_def(graph, return_elements=[f"{graph.node[-1].name}:0"])
        assert session.run(end) == 9


@tf.function(input_signature=NUMBER, autograph=False)
def _checked(number: tf.Tensor) -> tf.Tensor:
    def check() -> tf.Tensor:
        return tf.cast(tf.debugging.check_numerics(tf.cast(number, tf.float32), "wrong"), tf.int64)

    return tf.cond(number > 2, check, lambda: number)


@pytest.mark.parametrize("function", [_gated, _checked])
def test_a_gate_and_a_check_are_found_in_a_branch(function: Any) -> None:
    assert not suits_one_thread(function.get_concrete_function())


def test_a_function_that_is_not_there_is_named() -> None:
    graph, name = _graph(_conditional)
    with raises(ValueError, "name", received="'push'", remedy=name):
        run_on_one_thread(graph, "push")
    with raises(ValueError, "name", received=_branch_of(graph), remedy="calls"):
        run_on_one_thread(graph, _branch_of(graph))


def _branch_of(graph: tf.compat.v1.GraphDef) -> str:
    nodes = [node for function in graph.library.function for node in function.node_def]
    name: str = next(n for n in nodes if "then_branch" in n.attr).attr["then_branch"].func.name
    return name
