"""Errors of scheduled functions: what raises them, how often, and what is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tfps
from tests.cluster.upstream.coordinators import coordinator_of
from tfps.bridge import tensorflow_private as private
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.timeout(180), pytest.mark.quick("plain*")]

ERROR = tf.errors.InvalidArgumentError


@pytest.fixture(scope="module", params=["plain", "short queue"])
def coordinator(
    request: pytest.FixtureRequest, cluster: Callable[..., LocalCluster]
) -> Iterator[tfps.ClusterCoordinator]:
    with coordinator_of(cluster, request.param) as coordinator:
        yield coordinator


@tf.function
def take(iterator: Any) -> tf.Tensor:
    return next(iterator)


@tf.function
def good() -> tf.Tensor:
    return tf.reduce_mean(tf.random.uniform((2, 10)) @ tf.random.uniform((10, 2)))


@tf.function
def bad() -> tf.Tensor:
    value = tf.reduce_sum(tf.random.uniform((2, 10), minval=1.0))
    tf.debugging.assert_non_positive(value, message="not positive")
    return value


@tf.function
def endless() -> tf.Tensor:
    value = tf.random.uniform((10, 10))
    while tf.reduce_sum(value) < 1e9:
        value = tf.random.uniform((10, 10))
    return value


def _schedule_with_an_error(coordinator: tfps.ClusterCoordinator) -> None:
    for _ in range(3):
        coordinator.schedule(good)
    coordinator.schedule(bad)


@pytest.mark.repeats
def test_join_raises_it(coordinator: tfps.ClusterCoordinator) -> None:
    _schedule_with_an_error(coordinator)
    with pytest.raises(ERROR, match="not positive"):
        coordinator.join()


@pytest.mark.repeats
@pytest.mark.parametrize("then", [good, bad], ids=["good", "bad"])
def test_schedule_raises_it(then: Any, coordinator: tfps.ClusterCoordinator) -> None:
    def schedule_on() -> None:
        while True:
            coordinator.schedule(then)

    _schedule_with_an_error(coordinator)
    with pytest.raises(ERROR, match="not positive"):
        schedule_on()
    coordinator.join()  # what was scheduled before is cancelled


@pytest.mark.repeats
def test_it_is_raised_once(coordinator: tfps.ClusterCoordinator) -> None:
    coordinator.schedule(bad)
    with pytest.raises(ERROR, match="not positive"):
        coordinator.join()
    coordinator.join()
    _schedule_with_an_error(coordinator)
    with pytest.raises(ERROR, match="not positive"):
        coordinator.join()


@pytest.mark.repeats
def test_the_result_raises_it_too(coordinator: tfps.ClusterCoordinator) -> None:
    result = coordinator.schedule(bad)
    with pytest.raises(ERROR, match="not positive"):
        result.fetch()
    with pytest.raises(ERROR, match="not positive"):
        coordinator.join()


@pytest.mark.repeats
def test_an_argument_that_failed(coordinator: tfps.ClusterCoordinator) -> None:
    argument = coordinator._create_per_worker_resources(bad)
    result = coordinator.schedule(tf.function(lambda value: value + 1), args=(argument,))
    for raising in (coordinator.join, result.fetch):
        with pytest.raises(private.ClosureInputError, match="not positive"):
            raising()


@pytest.mark.repeats
def test_an_argument_that_failed_and_is_not_used(coordinator: tfps.ClusterCoordinator) -> None:
    argument = coordinator._create_per_worker_resources(good)
    coordinator._create_per_worker_resources(bad)
    result = coordinator.schedule(tf.function(lambda value: value * 0), args=(argument,))
    coordinator.join()
    assert result.fetch() == 0


def test_what_runs_is_cancelled(coordinator: tfps.ClusterCoordinator) -> None:
    for _ in range(3):
        coordinator.schedule(good)
    result = coordinator.schedule(endless)
    coordinator.schedule(bad)
    with pytest.raises(ERROR, match="not positive"):
        coordinator.join()
    with pytest.raises(tf.errors.CancelledError):
        result.fetch()
    for _ in range(3):
        coordinator.schedule(good)
    coordinator.join()


@pytest.mark.repeats
def test_iterators_survive_it(coordinator: tfps.ClusterCoordinator) -> None:
    iterator = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(5)))
    coordinator.schedule(take, args=(iterator,))
    coordinator.join()  # cancelled while it takes, an iterator ends for good: tf.data's way
    coordinator.schedule(bad)
    with pytest.raises(ERROR, match="not positive"):
        coordinator.join()
    result = coordinator.schedule(take, args=(iterator,))
    coordinator.join()
    assert result.fetch() in (0, 1)
