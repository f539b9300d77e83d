"""The operations of a graph that do the same wherever they stand in it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tfps.bridge.functions.movable_operation import (
    DeferredTensor,
    allow_early_run,
    is_movable,
    iter_predecessors,
)


def _traced(function: Any, *specs: tf.TensorSpec) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*specs).graph


def _of_type(graph: Any, *types: str) -> list[Any]:
    found = [operation for operation in graph.get_operations() if operation.type in types]
    assert found
    return found


NUMBERS = tf.TensorSpec([None], tf.int64)


def test_arithmetic_moves_and_what_draws_does_not() -> None:
    graph = _traced(lambda x: x + tf.random.uniform([1], maxval=9, dtype=tf.int64), NUMBERS)
    assert all(is_movable(each) for each in _of_type(graph, "AddV2"))
    assert not any(is_movable(each) for each in _of_type(graph, "RandomUniformInt"))


def test_what_reads_or_writes_a_variable_stays() -> None:
    variable = tf.Variable([1], dtype=tf.int64)
    graph = _traced(lambda x: variable.assign_add(x).read_value(), tf.TensorSpec([1], tf.int64))
    assert not any(is_movable(e) for e in _of_type(graph, "ReadVariableOp", "AssignAddVariableOp"))


def test_batches_move_and_keep_their_order() -> None:
    iterator = iter(tf.data.Dataset.range(4))
    graph = _traced(lambda batches: next(batches) - next(batches), iterator._type_spec)
    first, second = _of_type(graph, "IteratorGetNext")
    assert is_movable(first)
    assert is_movable(second)
    assert first in list(iter_predecessors(second))
    for each in (first, second):
        allow_early_run(each)
    function = tf.function(lambda batches: next(batches) - next(batches), autograph=False)
    assert int(function(iterator)) == -1


def test_a_function_is_what_it_does() -> None:
    variable = tf.Variable(1)
    calls = ("StatefulPartitionedCall", "PartitionedCall")
    reads = tf.function(lambda x: x + variable)

    @tf.function(autograph=False)
    def checks(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_positive(x)
        return x + 1

    number = tf.TensorSpec([], tf.int32)
    assert all(
        is_movable(each) for each in _of_type(_traced(lambda x: 2 * checks(x), number), *calls)
    )
    assert not any(is_movable(e) for e in _of_type(_traced(lambda x: 2 * reads(x), number), *calls))


def _vocabulary() -> Any:
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, default_value=0)


def test_a_vocabulary_is_read_after_what_was_written_to_it_before() -> None:
    table = _vocabulary()

    def step(x: tf.Tensor) -> tf.Tensor:
        first = table.lookup(x)
        table.insert(x, x)
        return first + table.lookup(x)

    graph = _traced(step, NUMBERS)
    first, second = _of_type(graph, "LookupTableFindV2")
    (insert,) = _of_type(graph, "LookupTableInsertV2")
    assert is_movable(first)
    assert is_movable(second)
    assert not is_movable(insert)
    assert insert not in iter_predecessors(first)
    assert insert in iter_predecessors(second)
    assert first in iter_predecessors(second)


def test_a_check_that_may_move_waits_for_nothing_that_has_an_effect() -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        tf.print("first")
        check = tf.raw_ops.Assert(condition=tf.reduce_all(x > 0), data=[x])
        allow_early_run(check)
        return x

    (check,) = _of_type(_traced(step, NUMBERS), "Assert")
    assert not check.control_inputs


@pytest.mark.parametrize("known", [None, 2])
def test_a_stand_in_becomes_what_comes_later(known: int | None) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        stand_in = DeferredTensor([known, 3], tf.float32)
        assert stand_in.tensor.shape.as_list() == [known, 3]
        assert tf.get_static_value(stand_in.tensor) is None
        doubled = 2 * stand_in.tensor
        stand_in.resolve(x + 1)
        return doubled

    values = tf.ones([2, 3])
    expected = tf.fill([2, 3], 4.0)
    tf.debugging.assert_equal(tf.function(step, autograph=False)(values), expected)
