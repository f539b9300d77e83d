"""Scheduled functions that train keep to rounds, without endless waits.

Their numbers: tests/unit/one_process/test_requests_of_functions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import CustomLoop, survive_a_death
from tfps.bridge.closures import closure_queue
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(180)

ROUNDS = 20


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    resolver = cluster(workers=2, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(
        resolver, placement="round_robin", consistency=tfps.Synchronous()
    )
    with pytest.MonkeyPatch.context() as patch:
        # Two workers shall share every round, however busy the machine is.
        patch.setattr(closure_queue, "LINGER_S", 2.0)
        yield strategy
    strategy.close()


@pytest.mark.repeats
def test_one_function_at_a_time_waits_for_nobody(loop: CustomLoop) -> None:
    for number in range(3):
        (worker,) = loop.schedule(1, first=number)
        worker.fetch()
    assert loop.updates == 3


@pytest.mark.slow
def test_an_error_between_pull_and_push_holds_nobody_up(
    strategy: tfps.ParameterServerStrategy, loop: CustomLoop
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="wrong on purpose"):
        loop.run(20, wrong=9)
    done = loop.updates
    assert 4 <= done <= 20
    loop.run(8)
    assert loop.updates == done + 4
    assert len(set(strategy.stats().versions)) == 1


@pytest.mark.repeats
def test_traces_of_a_function_are_one_round(loop: CustomLoop) -> None:
    """Calls in a loop are rounds as well, one each."""

    @tf.function
    def of_rows(rows: tf.Tensor) -> None:
        gradients = [tf.reduce_mean(rows, 0) for _ in loop.weights]
        for _ in tf.range(2):
            loop.optimizer.apply(gradients, loop.weights)

    rows = [tf.ones([2, 3]), 3.0 * tf.ones([1, 3])]
    for each in rows:
        loop.coordinator.schedule(of_rows, args=(each,))  # takes its time when it is traced
    loop.coordinator.join()
    loop.start_again()
    for each in rows * ROUNDS:
        loop.coordinator.schedule(of_rows, args=(each,))
    loop.coordinator.join()
    assert loop.updates == 2 * ROUNDS
    for weight in loop.weights:
        np.testing.assert_allclose(weight.numpy(), 1 - 0.01 * 2 * 2 * ROUNDS, rtol=1e-4)


@pytest.mark.repeats
def test_fit_and_scheduled_functions_by_turns(
    strategy: tfps.ParameterServerStrategy, loop: CustomLoop
) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones([40, 1], "float32")
    for turn in range(2):
        workers = loop.schedule(6)
        for worker in workers:
            worker.fetch()  # no `join`: members are evicted when `fit` begins
        model.fit(x, x, batch_size=2, verbose=0)
        assert loop.updates == 3 * (turn + 1)
        assert int(model.optimizer.iterations) == 10 * (turn + 1)
        model.evaluate(x, x, verbose=0)


@pytest.mark.repeats
def test_who_is_late_is_dropped(cluster: Callable[..., LocalCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.Synchronous(backup_workers=1),
    )
    loop = CustomLoop(strategy, "sgd")
    workers = loop.run(80, slow=1)
    stats = strategy.stats()
    # The first of the two completes a round, on each server by itself.
    assert stats.versions == (loop.updates, loop.updates)
    assert stats.updates_applied + stats.gradients_dropped == len(workers)
    assert 0 < stats.gradients_dropped <= len(workers) // 2
    strategy.close()


# A quicker death in rounds is in test_synchronous.py.
@pytest.mark.repeats
@pytest.mark.conformance
def test_a_worker_that_dies_is_not_waited_for(
    cluster: Callable[..., LocalCluster], loop: CustomLoop
) -> None:
    survive_a_death(loop, cluster(workers=2, ps=2))
