"""The datasets that every worker can iterate, and that all copies make the same batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.training.input.dataset_function import is_dataset_function, takes_context
from tfps.training.input.dataset_graph import (
    NotPortableError,
    make_deterministic,
    make_operations_deterministic,
    portable_graph,
    without_global_seed,
)
from tfps.training.input.sharded_dataset import ShardedDataset

NUMBERS = tf.data.Dataset.range


def _copy(graph: tf.compat.v1.GraphDef, spec: tf.TypeSpec) -> list[int]:
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    return [int(n) for n in tf.data.experimental.from_variant(variant, spec)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: NUMBERS(50).shuffle(50),
        lambda: NUMBERS(50).shuffle(50, seed=3).repeat(2),
        lambda: NUMBERS(50).map(lambda n: n + 1, num_parallel_calls=4, deterministic=False),
        lambda: NUMBERS(5).interleave(
            lambda n: NUMBERS(9), cycle_length=4, num_parallel_calls=4, deterministic=False
        ),
        lambda: tf.data.Dataset.random().take(20),
        lambda: tf.data.Dataset.sample_from_datasets([NUMBERS(20), NUMBERS(30)]),
        lambda: NUMBERS(9).cache(),
    ],
)
def test_copies_make_the_same_batches(make: Callable[[], tf.data.Dataset]) -> None:
    dataset = make()
    graph = portable_graph(dataset)
    make_deterministic(graph)
    first = _copy(graph, dataset.element_spec)
    assert first == _copy(graph, dataset.element_spec)
    if dataset.cardinality() > 0:
        assert len(first) == dataset.cardinality()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: tf.data.Dataset.from_generator(lambda: [1], tf.int64), "calls Python"),
        (
            lambda: NUMBERS(3).map(lambda n: tf.numpy_function(np.abs, [n], tf.int64)),
            "calls Python",
        ),
        (lambda: NUMBERS(3).map(lambda n: n + tf.random.uniform([], 0, 9, tf.int64)), "stateful"),
        (lambda: NUMBERS(3).map(_plus_variable()), "stateful"),
        (lambda: tf.data.Dataset.from_tensor_slices(np.zeros([5000, 1000])), "38 MB"),
        (lambda: NUMBERS(3).map(_plus_array()), "38 MB"),
        (lambda: NUMBERS(3).cache(str(Path("/tmp") / "cache")), "cached in a file"),
    ],
)
def test_bound_datasets_say_why(make: Callable[[], tf.data.Dataset], reason: str) -> None:
    with raises(NotPortableError, reason):
        make_deterministic(portable_graph(make()))


def _plus_variable() -> Callable[[tf.Tensor], tf.Tensor]:
    variable = tf.Variable(1, dtype=tf.int64)
    return lambda n: n + variable


def _plus_array() -> Callable[[tf.Tensor], tf.Tensor]:
    array = tf.zeros([5000, 1000], tf.float64)
    return lambda n: array[n, 0]


def test_who_is_a_dataset_function_and_who_wants_a_context() -> None:
    class Creator:
        dataset_fn = staticmethod(NUMBERS)

    class Maker:
        def __call__(self, context: object) -> None: ...

    assert is_dataset_function(Creator())
    assert is_dataset_function(Maker())
    assert is_dataset_function(lambda: None)
    assert not is_dataset_function(NUMBERS(3))
    assert not is_dataset_function(np.zeros(3))
    assert takes_context(Maker())
    assert takes_context(lambda context: None)
    assert takes_context(lambda input_context=None: None)
    assert takes_context(lambda *arguments: None)
    assert not takes_context(lambda: None)
    assert not takes_context(lambda batch_size=64: None)


def _deterministic(
    make: Callable[[], tf.data.Dataset],
) -> tuple[Callable[[int], list[int]], set[str]]:
    """Return a function that runs a pass twice, and the operations that could not be settled."""
    unsettled: set[str] = set()

    def trace(number: tf.Tensor) -> tf.data.Dataset:
        graph = tf.compat.v1.get_default_graph()
        with without_global_seed(graph):
            dataset = make()
        unsettled.update(make_operations_deterministic(graph, number))
        return dataset

    traced = tf.function(trace, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int64))

    def elements(number: int) -> list[int]:
        dataset = traced(tf.constant(number, tf.int64))
        once = [int(element) for element in dataset]
        assert once == [int(element) for element in dataset]
        return once

    return elements, unsettled


@pytest.mark.parametrize(
    ("make", "differs"),
    [
        (lambda: NUMBERS(50).shuffle(50), True),
        (lambda: NUMBERS(50).shuffle(50, seed=3), True),
        (lambda: NUMBERS(50).shuffle(50, seed=3, reshuffle_each_iteration=False), False),
        (lambda: NUMBERS(50).shuffle(50, reshuffle_each_iteration=False), False),
        (lambda: NUMBERS(25).shuffle(25).repeat(2), True),
        (lambda: tf.data.Dataset.random().take(20), True),
        (lambda: NUMBERS(50), False),
    ],
)
def test_every_worker_sees_the_order_of_a_pass(
    make: Callable[[], tf.data.Dataset], differs: bool
) -> None:
    elements, unsettled = _deterministic(make)
    assert elements(1) == elements(1)
    assert (elements(1) != elements(2)) == differs
    assert not unsettled


def test_a_global_seed_gives_one_order_to_all_and_the_same_in_each_run() -> None:
    """The calls of one function for several shards must give datasets of the same order."""

    def orders() -> list[list[int]]:
        tf.random.set_seed(5)
        made = (lambda: NUMBERS(50).shuffle(50), lambda: NUMBERS(50).skip(0).shuffle(50))
        return [_deterministic(make)[0](1) for make in made]

    try:
        (first, second), again = orders(), orders()
    finally:
        tf.random.set_seed(None)
    assert first == second
    assert again == [first, second]


def test_parallel_operations_keep_their_order() -> None:
    elements, unsettled = _deterministic(
        lambda: NUMBERS(50).map(lambda n: n + 1, num_parallel_calls=4, deterministic=False)
    )
    assert elements(0) == list(range(1, 51))
    assert not unsettled


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: NUMBERS(3).flat_map(lambda n: NUMBERS(9).shuffle(9)), {"ShuffleDatasetV3"}),
        (lambda: NUMBERS(3).flat_map(lambda n: NUMBERS(9).shuffle(9, seed=1)), set()),
        (
            lambda: NUMBERS(3).flat_map(
                lambda n: NUMBERS(9).map(lambda m: m, num_parallel_calls=2, deterministic=False)
            ),
            {"ParallelMapDatasetV2"},
        ),
    ],
)
def test_what_is_left_to_chance_within_a_function_is_named(
    make: Callable[[], tf.data.Dataset], names: set[str]
) -> None:
    assert _deterministic(make)[1] == names


def test_shards_are_a_dataset_function() -> None:
    assert is_dataset_function(ShardedDataset(NUMBERS, number=2))


@pytest.mark.parametrize(
    ("function", "number", "key", "received"),
    [
        (NUMBERS(3), 2, "function", "Dataset"),
        (NUMBERS, 0, "number", "0"),
        (NUMBERS, True, "number", "True"),
        (NUMBERS, 2.0, "number", "2.0"),
        (None, "3", "function", "NoneType"),
        (None, "3", "number", "'3'"),
    ],
)
def test_shards_that_cannot_be(function: Any, number: Any, key: str, received: str) -> None:
    remedy = "whole number" if key == "number" else "callable"
    with raises(ConfigError, f"{key}: received", received=received, remedy=remedy):
        ShardedDataset(function, number=number)
