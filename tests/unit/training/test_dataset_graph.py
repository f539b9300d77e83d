"""Which datasets every worker can iterate, and that all copies make the same batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfps.training.dataset_function import is_dataset_function, takes_context
from tfps.training.dataset_graph import NotPortable, portable_graph, settle

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
    settle(graph)
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
    with pytest.raises(NotPortable, match=reason):
        settle(portable_graph(make()))


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
