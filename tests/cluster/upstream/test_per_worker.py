"""The index, values and variables that each worker has of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tfps
from tests.cluster.upstream.coordinators import WAYS, coordinator_of
from tests.cluster.upstream.tensorflow_names import VariableSpec, cluster_coordinator
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180), pytest.mark.quick("plain*")]

WORKERS = 2


@pytest.fixture(scope="module", params=WAYS)
def coordinator(
    request: pytest.FixtureRequest, cluster: Callable[..., LocalCluster]
) -> Iterator[tfps.ClusterCoordinator]:
    with coordinator_of(cluster, request.param) as coordinator:
        yield coordinator


def test_a_dataset_function_knows_its_worker(coordinator: tfps.ClusterCoordinator) -> None:
    strategy = coordinator.strategy

    def make(_: tf.distribute.InputContext) -> tf.data.Dataset:
        index = tf.distribute.coordinator.experimental_get_current_worker_index()
        return tf.data.Dataset.range(10).shard(WORKERS, index)

    @tf.function
    def make_per_worker() -> Any:
        return strategy.distribute_datasets_from_function(make)

    @tf.function
    def total(iterator: Any) -> tf.Tensor:
        result = tf.constant(0, tf.int64)
        for value in iterator:
            result += value
        return result

    iterator = iter(coordinator.create_per_worker_dataset(make_per_worker))
    queue = coordinator._cluster.closure_queue
    results = []
    for index in range(WORKERS):  # with its tag, each worker runs one, as in TensorFlow's test
        closure = cluster_coordinator.Closure(total, queue._cancellation_mgr, args=(iterator,))
        results.append(closure.build_output_remote_value())
        queue.inflight_closure_count += 1
        queue.put(closure, tag=index)
    coordinator.join()
    assert [int(result.fetch()) for result in results] == [20, 25]


def test_a_value_per_worker_is_an_argument(coordinator: tfps.ClusterCoordinator) -> None:
    devices = []

    def make() -> tf.Variable:
        counter = tf.Variable(0.0)
        devices.append(counter.device)
        return counter

    counters = coordinator._create_per_worker_resources(make)
    for counter in counters._values:  # which TensorFlow cannot know of a Python function's result
        counter._type_spec = VariableSpec((), tf.float32)

    @tf.function
    def count(counter: tf.Variable) -> None:
        counter.assign_add(1.0)

    for _ in range(10):
        coordinator.schedule(count, args=(counters,))
    coordinator.join()
    assert sum(coordinator.fetch(counters._values)) == 10.0
    assert devices
    assert all("/job:worker" in device for device in devices)


@pytest.mark.parametrize("shape", [[1], None])
def test_a_variable_per_worker(shape: Any, coordinator: tfps.ClusterCoordinator) -> None:
    with coordinator.strategy.scope():
        counter = tf.Variable([0.0], shape=shape, dtype=tf.float32, per_worker_variable=True)

    @tf.function
    def count() -> Any:
        counter.assign_add([1.0])
        return counter

    for expected in range(1, 4):
        coordinator.schedule(count)
        coordinator.join()
        assert sum(counter.read_all()).numpy() == [expected]
    for _ in range(7):
        coordinator.schedule(count)
    coordinator.join()
    assert sum(counter.read_all()).numpy() == [10.0]
    devices = [each._get_values().device for each in counter._per_worker_vars._values]
    assert devices == [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(WORKERS)]
