"""`schedule`, `join`, `done`, `fetch` and per-worker datasets, as TensorFlow asserts them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.upstream.coordinators import WAYS, coordinator_of
from tfps.bridge import tensorflow_private as private
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.timeout(180), pytest.mark.quick("plain*")]

WORKERS = 2


@pytest.fixture(scope="module", params=WAYS)
def coordinator(
    request: pytest.FixtureRequest, cluster: Callable[..., LocalCluster]
) -> Iterator[tfps.ClusterCoordinator]:
    with coordinator_of(cluster, request.param) as coordinator:
        yield coordinator


@tf.function
def take(iterator: Any) -> tf.Tensor:
    return next(iterator)


@tf.function
def take_both(first: Any, second: Any) -> tf.Tensor:
    return next(first) + next(second)


@pytest.mark.repeats
def test_a_strategy_has_one_coordinator(coordinator: tfps.ClusterCoordinator) -> None:
    again = tfps.ClusterCoordinator(coordinator.strategy)
    assert again is coordinator
    assert again._cluster is coordinator._cluster


@pytest.mark.repeats
def test_a_function_may_return_a_structure(coordinator: tfps.ClusterCoordinator) -> None:
    one = tf.constant(1)

    @tf.function
    def function() -> Any:
        return one + 1, (one + 2, one + 3), [one + 4], {"v": one}

    expected = (2, (3, 4), [5], {"v": 1})
    results = [coordinator.schedule(function) for _ in range(5)]
    assert results[0].fetch() == expected
    assert coordinator.fetch(results[0]) == expected
    assert coordinator.fetch(results) == [expected] * 5


def test_every_iteration_starts_anew(coordinator: tfps.ClusterCoordinator) -> None:
    with coordinator.strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        value = next(iterator)
        total.assign_add(value)
        return value

    dataset = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(1, 2))
    for _ in range(2):
        result = coordinator.schedule(step, args=(iter(dataset),))
        assert coordinator.fetch(result) == 1
    assert int(total.numpy()) == 2


@pytest.mark.repeats
def test_join_waits_for_all_and_may_be_repeated(coordinator: tfps.ClusterCoordinator) -> None:
    with coordinator.strategy.scope():
        total = tf.Variable(0)

    @tf.function
    def step(iterator: Any) -> None:
        total.assign_add(next(iterator))

    iterator = iter(
        coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensor_slices([2] * 10))
    )
    coordinator.join()  # nothing was scheduled
    assert int(total.numpy()) == 0
    for expected in (10, 20):
        for _ in range(5):
            coordinator.schedule(step, args=(iterator,))
        for _ in range(3):
            coordinator.join()
        assert coordinator.done()
        assert int(total.numpy()) == expected


@pytest.mark.repeats
@pytest.mark.parametrize("made", ["on the workers", "on the chief"])
def test_a_dataset_is_traced_once(made: str, coordinator: tfps.ClusterCoordinator) -> None:
    traces = []

    def add_ten(value: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return value + 10

    def make() -> tf.data.Dataset:
        return tf.data.Dataset.range(10).map(add_ten)

    dataset = coordinator.create_per_worker_dataset(make if made == "on the workers" else make())
    result = coordinator.schedule(take, args=(iter(dataset),))
    assert result.fetch() == 10
    assert len(traces) == 1


@pytest.mark.repeats
def test_a_dataset_function_may_make_no_variables(coordinator: tfps.ClusterCoordinator) -> None:
    with pytest.raises(ValueError, match="tf.Variable"):
        coordinator.create_per_worker_dataset(lambda: tf.Variable(0.0).read_value())


@pytest.mark.repeats
@pytest.mark.parametrize("made", ["on the workers", "on the chief"])
def test_workers_shuffle_differently(made: str, coordinator: tfps.ClusterCoordinator) -> None:
    strategy = coordinator.strategy
    tf.random.set_seed(None)

    def make() -> Any:
        dataset = tf.data.Dataset.range(100).shuffle(100).batch(1)
        return strategy.experimental_distribute_dataset(dataset)

    dataset = coordinator.create_per_worker_dataset(make if made == "on the workers" else make())
    orders = []
    for values in iter(dataset)._values:
        elements = [strategy.experimental_local_results(value) for value in values.fetch()]
        orders.append(np.ravel(elements).tolist())
    assert len(orders) == WORKERS
    assert [sorted(order) for order in orders] == [list(range(100))] * WORKERS
    assert orders[0] != orders[1]


@pytest.mark.repeats
def test_a_result_is_no_argument(coordinator: tfps.ClusterCoordinator) -> None:
    result = coordinator.schedule(tf.function(lambda: 1.0))
    with pytest.raises(ValueError, match="used as an input to scheduled function"):
        coordinator.schedule(tf.function(lambda value: value + 1.0), args=(result,))
    assert result.fetch() == 1.0


@pytest.mark.repeats
def test_a_python_function_cannot_be_scheduled(coordinator: tfps.ClusterCoordinator) -> None:
    with pytest.raises(TypeError, match=r"only accepts a `tf\.function` or a concrete function"):
        coordinator.schedule(lambda value: value, args=(1,))


@pytest.mark.repeats
def test_a_dataset_cannot_be_half_of_the_chief(coordinator: tfps.ClusterCoordinator) -> None:
    on_chief = tf.data.Dataset.range(1, 10)
    dataset = coordinator.create_per_worker_dataset(tf.function(lambda: on_chief.shuffle(9)))
    coordinator.schedule(take, args=(iter(dataset),))
    with pytest.raises(private.ClosureInputError, match="Failed copying input tensor from"):
        coordinator.join()


@pytest.mark.repeats
def test_a_dataset_of_the_chief_is_copied(coordinator: tfps.ClusterCoordinator) -> None:
    dataset = coordinator.create_per_worker_dataset(tf.data.Dataset.range(1, 11).batch(4))
    result = coordinator.schedule(take, args=(iter(dataset),))
    np.testing.assert_array_equal(result.fetch(), [1, 2, 3, 4])


@pytest.mark.repeats
def test_a_function_may_take_several_iterators(coordinator: tfps.ClusterCoordinator) -> None:
    make = coordinator.create_per_worker_dataset
    first = iter(make(lambda: tf.data.Dataset.range(0, 5)))
    second = iter(make(lambda: tf.data.Dataset.range(5, 10)))
    assert coordinator.schedule(take_both, args=(first, second)).fetch() == 5
    fresh = iter(make(lambda: tf.data.Dataset.range(0, 5)))
    assert coordinator.schedule(take_both, args=(fresh, second)).fetch() in (5, 6)


@pytest.mark.repeats
def test_iterators_are_freed_on_the_workers(coordinator: tfps.ClusterCoordinator) -> None:
    datasets = [
        coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(1, 100))
        for _ in range(2)
    ]

    def use() -> None:
        iterators = tuple(iter(dataset) for dataset in datasets)
        results = [coordinator.schedule(take_both, args=iterators) for _ in range(6)]
        coordinator.join()
        assert results[0].fetch() >= 2

    for _ in range(4):
        use()
    gc.collect()
    references = [
        reference()
        for worker in coordinator._cluster.workers
        for reference in worker._resource_remote_value_refs
    ]
    assert [reference for reference in references if reference is not None] == []
