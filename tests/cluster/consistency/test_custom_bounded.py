"""Scheduled functions that train keep to a bound, and none waits for ever.

How fast workers wait: tests/unit/one_process/test_requests_of_functions.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import CustomLoop, wait_for
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

BOUND = 2


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    resolver = cluster(workers=2, ps=2).cluster_resolver
    strategy = tfps.ParameterServerStrategy(
        resolver, placement="round_robin", consistency=tfps.BoundedStaleness(BOUND)
    )
    yield strategy
    strategy.close()


def test_an_odd_number_and_an_error(strategy: tfps.ParameterServerStrategy) -> None:
    loop = CustomLoop(strategy, "adam")
    loop.run(7, slow=1)
    assert loop.updates == 7
    with pytest.raises(tf.errors.InvalidArgumentError, match="wrong on purpose"):
        loop.run(30, wrong=9, slow=1)
    done = loop.updates
    loop.run(9)
    assert loop.updates == done + 9


def test_each_call_of_an_optimizer_is_a_step(
    strategy: tfps.ParameterServerStrategy, loop: CustomLoop
) -> None:

    @tf.function
    def steps(count: tf.Tensor) -> None:
        for _ in tf.range(count):
            loop.optimizer.apply([tf.ones([3]), tf.ones([3])], loop.weights)

    for _ in range(10):
        loop.coordinator.schedule(steps, args=(tf.constant(3),))
    loop.coordinator.join()
    assert loop.updates == 30
    largest = strategy.stats().clock_gap_steps[1]
    assert largest is not None
    assert largest <= BOUND
    np.testing.assert_allclose(loop.weights[1].numpy(), 1 - 30 * 0.01, rtol=1e-5)


@pytest.mark.conformance
def test_a_worker_that_dies_is_not_waited_for(
    cluster: Callable[..., LocalCluster], strategy: tfps.ParameterServerStrategy, loop: CustomLoop
) -> None:
    tasks = cluster(workers=2, ps=2)
    loop.schedule(200, slow=-1)
    wait_for(lambda: loop.updates > 10)
    tasks.kill("worker", 1)
    starter = threading.Thread(target=tasks.restart, args=("worker", 1))
    starter.start()
    loop.coordinator.join()
    starter.join()
    assert 200 <= loop.updates <= 201  # one may be applied again by another worker
    wait_for(lambda: all(strategy.alive_workers()))
    wait_for(lambda: set(loop.run(20)) == {0, 1})
