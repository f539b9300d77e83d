"""What the strategy's methods do outside of a scheduled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import tfps
from tests.cluster.upstream.conftest import MakeStrategy

pytestmark = pytest.mark.timeout(180)


def _run_on_the_chief(strategy: tfps.ParameterServerStrategy) -> tf.Tensor:
    with strategy.scope():
        one = tf.Variable(1, dtype=tf.int64)
    iterator = iter(tf.data.Dataset.range(5, 8))
    return strategy.run(lambda iterator: next(iterator) + one, args=(iterator,))


def test_run_warns(make_strategy: MakeStrategy, warns_of_use_outside: Callable[[], Any]) -> None:
    strategy = make_strategy()
    with warns_of_use_outside():
        assert int(_run_on_the_chief(strategy)) == 6


def test_run_does_not_warn_when_it_is_allowed(
    make_strategy: MakeStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = make_strategy()
    strategy.extended._allow_run_without_coordinator = True
    assert int(_run_on_the_chief(strategy)) == 6
    assert "ClusterCoordinator.schedule" not in caplog.text


def test_reduce_warns(make_strategy: MakeStrategy, warns_of_use_outside: Callable[[], Any]) -> None:
    strategy = make_strategy()
    with warns_of_use_outside():
        assert strategy.reduce("SUM", None, axis=None) is None


@pytest.mark.parametrize("way", ["dataset", "function"])
def test_a_distributed_dataset_cannot_be_iterated(way: str, make_strategy: MakeStrategy) -> None:
    strategy, dataset = make_strategy(), tf.data.Dataset.range(3)
    distributed = (
        strategy.experimental_distribute_dataset(dataset)
        if way == "dataset"
        else strategy.distribute_datasets_from_function(lambda _: dataset)
    )
    with pytest.raises(ValueError, match="create_per_worker_dataset"):
        iter(distributed)


def test_run_warns_again_after_a_schedule(
    make_strategy: MakeStrategy, warns_of_use_outside: Callable[[], Any]
) -> None:
    strategy = make_strategy(ps=1)
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        one = tf.Variable(1, dtype=tf.int64)

    def replica(value: tf.Tensor) -> Any:
        return value + one, value - one

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.run(replica, args=(next(iterator),))

    dataset = coordinator.create_per_worker_dataset(
        tf.function(lambda: tf.data.Dataset.range(1, 3))
    )
    iterator = iter(dataset)
    with warns_of_use_outside():
        strategy.run(replica, args=(tf.constant(1, tf.int64),))
    result = coordinator.schedule(step, args=(iterator,))
    with warns_of_use_outside():
        strategy.run(replica, args=(tf.constant(1, tf.int64),))
    assert strategy.experimental_local_results(result.fetch()) == ((2, 0),)
