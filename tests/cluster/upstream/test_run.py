"""`run`, `reduce` and distributed datasets inside scheduled functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.upstream.conftest import resolver_of
from tests.cluster.upstream.tensorflow_names import cache_variable_reads
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)

KINDS = ("function", "dataset")


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(resolver_of(cluster(workers=1, ps=1)))
    yield strategy
    strategy.close()


@pytest.fixture(scope="module")
def coordinator(strategy: tfps.ParameterServerStrategy) -> tfps.ClusterCoordinator:
    return tfps.ClusterCoordinator(strategy)


def _distributed(strategy: Any, kind: str, batch: int) -> Any:
    def make(_: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        return tf.data.Dataset.range(1, 11).batch(batch)

    if kind == "dataset":
        return strategy.experimental_distribute_dataset(make())
    return strategy.distribute_datasets_from_function(make)


@pytest.mark.repeats
def test_assignments_of_a_function(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    before = strategy.extended._variable_count
    with strategy.scope():
        first, second = tf.Variable(0.0), tf.Variable(1.0)
    assert strategy.extended._variable_count == before + 2

    @tf.function
    def step() -> tf.Tensor:
        first.assign_add(0.1)
        second.assign_sub(0.2)
        return first.read_value() / second.read_value()

    result = coordinator.schedule(step)
    assert coordinator.fetch(result) == pytest.approx(0.125)
    assert first.numpy() == pytest.approx(0.1)
    assert second.numpy() == pytest.approx(0.8)


@pytest.mark.quick("True")
@pytest.mark.parametrize("assigns", [False, True])
def test_run_and_reduce(
    assigns: bool, strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    contexts = []
    assert not tf.distribute.in_cross_replica_context()
    with strategy.scope():
        assert tf.distribute.in_cross_replica_context()
        one = tf.Variable(1.0)
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def replica(value: tf.Tensor) -> Any:
        contexts.append(tf.distribute.in_cross_replica_context())
        if assigns:
            total.assign_add(value)
        return value + one, value - one

    @tf.function
    def step(value: tf.Tensor) -> Any:
        return strategy.reduce("SUM", strategy.run(replica, args=(value,)), axis=None)

    with strategy.scope():
        inside = coordinator.schedule(step, args=(tf.constant(3.0),))
        assert isinstance(inside, tf.distribute.coordinator.RemoteValue)
        assert inside.fetch() == (4.0, 2.0)
    outside = coordinator.schedule(step, args=(tf.constant(3.0),))
    assert outside.fetch() == (4.0, 2.0)
    assert set(contexts) == {False}
    assert total.numpy() == (6.0 if assigns else 0.0)


@pytest.mark.repeats
def test_aggregation_in_a_function(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    with strategy.scope():
        variable = tf.Variable(7.0, aggregation=tf.VariableAggregation.SUM)

    def replica() -> None:
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        variable.assign(tf.cast(index + 1, tf.float32))

    @tf.function
    def step() -> None:
        strategy.run(replica)

    coordinator.schedule(step)
    coordinator.join()
    assert variable.numpy() == 1.0


@pytest.mark.repeats
def test_cached_reads(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    """One variable all along: TensorFlow caches for those alone that every scope has read."""
    with strategy.scope():
        variable = tf.Variable(1.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def replica() -> tf.Tensor:
        variable.read_value()
        variable.assign(9.0)
        return variable.read_value()

    def step() -> Any:
        return strategy.run(replica)

    def caching_step() -> Any:
        with cache_variable_reads():
            return strategy.run(replica)

    with strategy.scope():
        for read in (variable.read_value, lambda: variable * 1.0):
            variable.assign(1.0)
            with cache_variable_reads():
                assert float(read()) == 1.0
                variable.assign(5.0)
                assert float(read()) == 1.0
        variable.assign(2.0)
        assert coordinator.schedule(tf.function(caching_step)).fetch() == 2.0
        assert float(variable.read_value()) == 9.0
        variable.assign(3.0)
        with cache_variable_reads():
            result = coordinator.schedule(tf.function(step))
        assert result.fetch() == 3.0
        assert float(variable.read_value()) == 9.0
    with pytest.raises(ValueError, match="cannot be nested"), cache_variable_reads():
        with cache_variable_reads():
            variable.read_value()


@pytest.mark.repeats
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", ["on the workers", "on the chief"])
def test_distributed_datasets(
    made: str,
    kind: str,
    strategy: tfps.ParameterServerStrategy,
    coordinator: tfps.ClusterCoordinator,
) -> None:
    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.experimental_local_results(next(iterator))

    def make() -> Any:
        return _distributed(strategy, kind, 4)

    dataset = coordinator.create_per_worker_dataset(make if made == "on the workers" else make())
    (value,) = coordinator.schedule(step, args=(iter(dataset),)).fetch()
    np.testing.assert_array_equal(value, [1, 2, 3, 4])


@pytest.mark.repeats
def test_a_dataset_function_gets_a_context(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    contexts = []

    def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
        contexts.append(context)
        return tf.data.Dataset.range(1, 11).batch(1)

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.experimental_local_results(next(iterator))

    dataset = coordinator.create_per_worker_dataset(
        lambda: strategy.distribute_datasets_from_function(make)
    )
    assert coordinator.schedule(step, args=(iter(dataset),)).fetch() == ([1],)
    (context,) = contexts
    assert context.num_replicas_in_sync == 1
    assert (context.num_input_pipelines, context.input_pipeline_id) == (1, 0)


@pytest.mark.repeats
def test_reduced_values_add_up(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    with strategy.scope():
        total = tf.Variable([0.0])

    @tf.function
    def step(iterator: Any) -> None:
        total.assign_add(strategy.reduce("MEAN", next(iterator), axis=None))

    def make() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices([2.0]).repeat().batch(1)
        return strategy.experimental_distribute_dataset(dataset)

    iterator = iter(coordinator.create_per_worker_dataset(make))
    coordinator.join()
    assert total.numpy().tolist() == [0.0]
    for expected in (10.0, 20.0):
        for _ in range(5):
            coordinator.schedule(step, args=(iterator,))
        for _ in range(3):
            coordinator.join()
        assert coordinator.done()
        assert total.numpy().tolist() == [expected]


@pytest.mark.repeats
def test_a_distributed_dataset_is_traced_once(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    traces = []

    def add_ten(value: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return value + 10

    def make() -> Any:
        dataset = tf.data.Dataset.range(10).batch(1).map(add_ten)
        return strategy.experimental_distribute_dataset(dataset)

    @tf.function
    def take(iterator: Any) -> tf.Tensor:
        return next(iterator)

    dataset = coordinator.create_per_worker_dataset(make)
    result = coordinator.schedule(take, args=(iter(dataset),))
    assert strategy.experimental_local_results(result.fetch())[0].tolist() == [10]
    assert len(traces) == 1


@pytest.mark.repeats
def test_the_element_spec_is_the_datasets(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    dataset = tf.data.Dataset.from_tensor_slices([1, 2])
    distributed = coordinator.create_per_worker_dataset(
        lambda: strategy.distribute_datasets_from_function(lambda _: dataset)
    )
    assert distributed.element_spec == dataset.element_spec == tf.TensorSpec([], tf.int32)


@pytest.mark.repeats
def test_an_iterator_is_enough_to_trace(
    strategy: tfps.ParameterServerStrategy, coordinator: tfps.ClusterCoordinator
) -> None:
    traces = []

    def make() -> Any:
        traces.append(1)
        return strategy.distribute_datasets_from_function(lambda _: tf.data.Dataset.range(1, 2))

    @tf.function
    def take(iterator: Any) -> tf.Tensor:
        return next(iterator)

    iterator = iter(coordinator.create_per_worker_dataset(make))
    take.get_concrete_function(iterator)
    assert coordinator.schedule(take, args=(iterator,)).fetch() == 1
    assert len(traces) == 1


@pytest.mark.repeats
def test_a_dataset_itself_is_an_argument(coordinator: tfps.ClusterCoordinator) -> None:
    dataset = tf.data.Dataset.from_tensor_slices([1, 2])
    built = coordinator.create_per_worker_dataset(dataset).build()
    first = tf.function(lambda dataset: next(iter(dataset)))
    assert coordinator.schedule(first, args=(built,)).fetch() == 1
    specs = [value._type_spec for value in built._values]
    assert specs == [dataset._type_spec] * len(specs)
    assert specs
