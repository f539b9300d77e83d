"""Scheduled functions that run together: all that they count is exact when a worker dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import wait_for
from tests.unit.one_process.forced_runs import FORCED, ForcedRuns
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

FUNCTIONS, KILLS, SLEEP_S = 600, 3, 0.005


@pytest.mark.conformance
def test_killed(
    cluster: Callable[..., LocalCluster], carrier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each function counts once in the weight, the optimizer, the servers and a metric."""
    tasks = cluster(workers=2, ps=1)
    strategy = tfps.ParameterServerStrategy(tasks.cluster_resolver)
    with strategy.scope():
        weight = keras.Variable(0.0, name="weight")
        mean = keras.metrics.Mean(name="mean")
        optimizer = keras.optimizers.SGD(-1.0)
        optimizer.build([weight])

    @tf.function
    def step() -> tf.Tensor:
        begin = tf.timestamp()
        mean.update_state(3.0)
        optimizer.apply([tf.constant(1.0)], [weight])
        tf.while_loop(lambda: tf.timestamp() < begin + SLEEP_S, lambda: (), ())
        return optimizer.iterations.value

    runs = ForcedRuns(strategy, monkeypatch, limits=replace(FORCED, longest_s=0.2))
    for kills in range(1, KILLS + 1):
        before = int(optimizer.iterations.numpy())
        values = runs.schedule(step, FUNCTIONS)
        wait_for(lambda: int(optimizer.iterations.numpy()) > before + 50)  # noqa: B023
        tasks.kill("worker", 1)
        starter = threading.Thread(target=tasks.restart, args=("worker", 1))
        starter.start()
        strategy.coordinator.join()
        starter.join()
        wait_for(lambda: all(strategy.alive_workers()))
        expected = kills * FUNCTIONS
        assert int(optimizer.iterations.numpy()) == weight.numpy() == expected
        assert strategy.stats().versions == (expected,)
        assert (float(mean.count.numpy()), float(mean.total.numpy())) == (expected, 3.0 * expected)
        assert all(0 < int(value.fetch()) <= expected for value in values)
    assert sum(done for _, done in runs.sizes) > FUNCTIONS  # most of them
    strategy.close()
