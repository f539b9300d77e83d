"""A worker's closure runs on one thread only where nothing is lost by it."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tfps.runtime.worker.executor_choice import LARGE_MATRIX, MAX_DEPTH, GraphFacts, choose_executor
from tfps.runtime.worker.graph_facts import read_graph_facts

SMALL = ("MatMul", "Relu", "GatherV2", "AssignVariableOp", "While", "If")
ROWS = [tf.TensorSpec([None, 4])]

REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "carrier": ({"carrier": "grpc"}, "grpc"),
    "device": ({"is_one_cpu": False}, "GPU"),
    "early start": ({"chief_threads": 2}, "TensorFlow before the strategy, with 2"),
    "convolution": ({"kinds": frozenset({"Conv2DBackpropFilter"})}, "Conv2DBackpropFilter"),
    "check": ({"kinds": frozenset({"CheckNumericsV2"})}, "CheckNumericsV2 would not be named"),
    "Python": ({"kinds": frozenset({"EagerPyFunc"})}, "EagerPyFunc calls Python"),
    "old loop": ({"kinds": frozenset({"Switch"})}, "Switch is not supported"),
    "large product": ({"largest_matrix": LARGE_MATRIX}, "1,048,576"),
    "name": ({"unnamed_operation": "layer/Reshape"}, "layer/Reshape would not be named"),
    "call": ({"calls_outside_loop": True}, "outside of the loop"),
    "depth": ({"depth": MAX_DEPTH + 1}, f"{MAX_DEPTH + 1} conditions"),
}


@given(kinds=st.frozensets(st.sampled_from(SMALL)), depth=st.integers(0, MAX_DEPTH))
def test_small_operations_run_on_one_thread(kinds: frozenset[str], depth: int) -> None:
    choice = choose_executor(GraphFacts(kinds, depth=depth, largest_matrix=LARGE_MATRIX - 1))
    assert choice.is_one_thread
    assert str(choice).startswith("one thread: ")


@given(facts=st.sets(st.sampled_from(sorted(REASONS)), min_size=1))
def test_any_of_the_reasons_keeps_the_thread_pool(facts: set[str]) -> None:
    fields: dict[str, Any] = {"kinds": frozenset(SMALL)}
    for name in facts:
        more, _ = REASONS[name]
        kinds = fields["kinds"] | more.get("kinds", frozenset())
        fields |= {**more, "kinds": kinds}
    choice = choose_executor(GraphFacts(**fields))
    assert not choice.is_one_thread
    assert any(REASONS[name][1] in choice.reason for name in facts)


def _read(function: Any, signature: Any = ROWS) -> GraphFacts:
    traced = tf.function(function, autograph=False, input_signature=signature)
    graph = traced.get_concrete_function().graph
    return read_graph_facts(graph, carrier="direct", is_one_cpu=True, chief_threads=8)


def _loop(body: Any) -> Any:
    return lambda x: tf.while_loop(lambda x: tf.reduce_sum(x) < 9, lambda x: (body(x),), (x,))


def test_operations_are_found_in_loops_branches_and_functions() -> None:
    @tf.function(autograph=False)
    def inner(x: tf.Tensor) -> tf.Tensor:
        check = lambda: tf.debugging.check_numerics(x, "wrong")  # noqa: E731
        return tf.ensure_shape(tf.cond(tf.reduce_sum(x) > 1, check, lambda: x), [None, 4])

    facts = _read(_loop(inner))
    assert "CheckNumerics" in facts.kinds
    assert facts.depth == 2  # the call and its condition
    assert not facts.calls_outside_loop
    assert _read(inner).calls_outside_loop


def test_the_matrix_of_a_product_is_measured() -> None:
    assert _read(lambda x: x @ tf.ones([4, 5])).largest_matrix == 20


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: tf.gather(tf.constant([1.0, 2.0]), tf.cast(x, tf.int32)), "GatherV2"),
        (lambda x: tf.reshape(x, [-1, 2]), "Reshape"),
        (lambda x: x * tf.square(x), "mul"),
        (lambda x: tf.nn.relu(x @ tf.ones([4, 4]) + tf.ones([4])), ""),
        (lambda x: tf.tanh(2.0 * x), ""),
    ],
)
def test_a_line_of_the_users_that_may_fail_is_found(function: Any, name: str) -> None:
    assert _read(function).unnamed_operation == name


def test_operations_of_keras_need_no_line() -> None:
    layers = [keras.layers.Embedding(3, 2), keras.layers.Flatten(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    assert not _read(model).unnamed_operation


def test_a_product_whose_size_only_the_batch_knows_needs_its_name() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="named")])
    unknown = [tf.TensorSpec([None, None])]
    assert "named" in _read(model, unknown).unnamed_operation
