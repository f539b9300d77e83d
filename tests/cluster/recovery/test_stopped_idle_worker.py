"""A worker hangs (SIGSTOP) that has nothing to run: functions of a custom loop go to the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]


# A quicker one hangs while `fit` runs: test_stopped_worker.py.
def test_who_goes_on_does_not_wait_for_what_was_asked_of_it(
    tasks: Callable[..., LocalCluster],
) -> None:
    """Such as to forget its last result, which the chief asks for as soon as it has fetched it."""
    cluster = tasks(workers=2, ps=1)
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        count = tf.Variable(0)

    @tf.function
    def step() -> tf.Tensor:
        count.assign_add(1)
        return tf.distribute.coordinator.experimental_get_current_worker_index()

    steps, last = 0, 0
    while last != 1:
        last, steps = int(coordinator.schedule(step).fetch()), steps + 1
    cluster.suspend("worker", 1)
    for _ in range(5):
        coordinator.schedule(step).fetch()
    assert int(count) >= steps + 5
    strategy.close()
