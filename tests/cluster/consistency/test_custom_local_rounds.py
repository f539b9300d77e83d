"""Workers that meet at the end of periods of scheduled functions, and lost workers.

Their numbers: tests/unit/numbers/modes/test_two_workers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import CustomLoop, survive_a_death
from tfps.bridge.closures import closure_queue
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

PERIOD, ROUNDS = 3, 20
RATE = 0.01  # of Keras's "sgd"


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster], carrier: str
) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(PERIOD, synchronous_periods=True),
    )
    with pytest.MonkeyPatch.context() as patch:
        # Two workers shall share every round, however busy the machine is.
        patch.setattr(closure_queue, "LINGER_S", 2.0)
        yield strategy
    strategy.close()


def test_traces_of_a_function_are_one_round(loop: CustomLoop) -> None:
    """Also where each was traced for its own number of steps."""

    @tf.function
    def run(rows: tf.Tensor) -> None:
        for row in rows:
            loop.optimizer.apply([row for _ in loop.weights], loop.weights)

    arguments = [tf.ones([1, 3]), tf.ones([2, 3])]
    for rows in arguments:
        loop.coordinator.schedule(run, args=(rows,))
    loop.coordinator.join()
    loop.start_again()
    for rows in arguments * ROUNDS:
        loop.coordinator.schedule(run, args=(rows,))
    loop.coordinator.join()
    # Of one step and of two, the mean is one and a half.
    for weight in loop.weights:
        np.testing.assert_allclose(weight.numpy(), 1 - RATE * 1.5 * ROUNDS, rtol=1e-5)


@pytest.mark.conformance
def test_a_worker_that_dies_is_not_waited_for(
    cluster: Callable[..., LocalCluster], loop: CustomLoop
) -> None:
    survive_a_death(loop, cluster(workers=2, ps=2))
