"""Workers that meet at the end of periods of scheduled functions: numbers, and lost workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import TABLE, CustomLoop, survive_a_death
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


# Numbers alone: one process has them in tests/unit/numbers/modes/test_two_workers.py.
@pytest.mark.conformance
def test_workers_average_what_they_have(
    strategy: tfps.ParameterServerStrategy, loop: CustomLoop
) -> None:
    """By plain SGD, which keeps nothing: who runs which function does not matter.

    Two traces of a function are one round; each function is a whole period and a shorter one.
    """
    steps = PERIOD + 1

    @tf.function
    def run(rows: tf.Tensor) -> tf.Tensor:
        for row in rows:
            gradients = [row + weight for weight in loop.weights]
            loop.optimizer.apply(gradients, loop.weights)
        return tf.distribute.coordinator.experimental_get_current_worker_index()

    arguments = [tf.constant(TABLE[i * steps : (i + 1) * steps]) for i in range(2 * ROUNDS)]
    loop.run(2)  # now all variables lie where they stay
    loop.coordinator.schedule(run, args=(arguments[0],))  # takes its time when it is traced
    loop.coordinator.join()
    loop.start_again()
    before = strategy.stats()
    workers = [loop.coordinator.schedule(run, args=(rows,)) for rows in arguments]
    loop.coordinator.join()
    after = strategy.stats()
    assert [int(worker.fetch()) for worker in workers].count(0) == ROUNDS
    expected = np.ones([3], "float32")
    for k in range(ROUNDS):
        for part in (slice(0, PERIOD), slice(PERIOD, steps)):
            results = []
            for rows in arguments[2 * k : 2 * k + 2]:
                own = expected
                for row in rows.numpy()[part]:
                    own = own - RATE * (row + own)
                results.append(own)
            expected = (results[0] + results[1]) / 2
    for weight in loop.weights:
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5)
    assert loop.updates == ROUNDS * steps
    counts = [now - then for now, then in zip(after.versions, before.versions, strict=True)]
    assert counts == [2 * ROUNDS, 2 * ROUNDS]


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
