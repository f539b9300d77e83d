"""The strategy's methods outside of scheduled functions, before and after some of these."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import tfps
from tests.cluster.upstream.conftest import MakeStrategy
from tests.unit.upstream.use_outside import warns_of_use_outside

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


def test_run_warns_again_after_a_schedule(
    make_strategy: MakeStrategy, caplog: pytest.LogCaptureFixture
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
    with warns_of_use_outside(caplog):
        strategy.run(replica, args=(tf.constant(1, tf.int64),))
    result = coordinator.schedule(step, args=(iterator,))
    with warns_of_use_outside(caplog):
        strategy.run(replica, args=(tf.constant(1, tf.int64),))
    assert strategy.experimental_local_results(result.fetch()) == ((2, 0),)
