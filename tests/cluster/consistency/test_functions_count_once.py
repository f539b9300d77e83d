"""Workers die and hang in functions with several optimizer calls: each call counts once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.cluster.consistency.custom_loop import wait_for
from tests.cluster.many_calls import ManyCalls
from tfps.launch import LocalCluster

# A killed worker in the asynchronous mode is in tests/cluster/recovery/test_lost_server_returns.py.
pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

FUNCTIONS = 80
# A worker may die before its function has sent anything: then nothing comes twice, and another one
# is killed, or stopped. On a slow machine even the last may, and the counts must be right all the
# same; tests/unit/one_process/test_functions_run_again.py has calls that come twice for certain.
KILLS = 6
# What all calls come to in a weight, by call: the mean of a round is one for any contributors,
# and differences are divided by the number of workers.
MODES: dict[str, tuple[Any, float | None]] = {
    "asynchronous": (tfps.Asynchronous(), 1.0),
    "bounded": (tfps.BoundedStaleness(2), 1.0),
    "synchronous": (tfps.Synchronous(), None),
    "local": (tfps.LocalSteps(2), 0.5),
}


@pytest.fixture(scope="module")
def tasks(cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return cluster(workers=2, ps=2)


@pytest.fixture
def loop(tasks: LocalCluster, carrier: str, mode: str) -> Iterator[ManyCalls]:
    strategy = tfps.ParameterServerStrategy(
        tasks.cluster_resolver, placement="round_robin", consistency=MODES[mode][0]
    )
    yield ManyCalls(strategy)
    strategy.close()


def _check(loop: ManyCalls, mode: str) -> None:
    """Check that each server took each call once, also if it came again."""
    _, share = MODES[mode]
    calls = loop.expected
    # A period's message brings two calls.
    messages = calls // 2 if mode == "local" else calls
    assert loop.counted("staleness") == [messages, messages]
    if share is None:
        (value,) = set(loop.values().values())
        assert loop.iterations() == value == loop.strategy.stats().versions[0]
        assert calls // 2 <= value <= calls
    else:
        assert set(loop.values().values()) == {calls * share}
        assert loop.iterations() == calls
        assert loop.strategy.stats().versions == (messages, messages)


@pytest.mark.conformance
@pytest.mark.parametrize("mode", MODES)
def test_killed(loop: ManyCalls, tasks: LocalCluster, mode: str) -> None:
    for _ in range(KILLS):
        loop.schedule(FUNCTIONS)
        loop.wait_for(loop.counted("staleness")[0] + 20)
        tasks.kill("worker", 1)
        starter = threading.Thread(target=tasks.restart, args=("worker", 1))
        starter.start()
        loop.coordinator.join()
        starter.join()
        wait_for(lambda: all(loop.strategy.alive_workers()))
        if min(loop.counted("DUPLICATES")) > 0:
            break
    _check(loop, mode)


@pytest.mark.conformance
@pytest.mark.parametrize("mode", ["asynchronous", "bounded"])
def test_hung(loop: ManyCalls, tasks: LocalCluster, mode: str) -> None:
    """The hung worker goes on in the middle of a function that another one has run since."""
    queue = loop.coordinator._cluster.closure_queue
    for _ in range(KILLS):
        loop.schedule(FUNCTIONS)
        loop.wait_for(loop.counted("staleness")[0] + 20)
        tasks.suspend("worker", 1)
        try:
            loop.coordinator.join()
            known = loop.counted("EXCHANGES")
        finally:
            tasks.resume("worker", 1)
        wait_for(lambda: all(loop.strategy.alive_workers()))
        wait_for(lambda: not queue.recalled_workers)  # it has come to the end of its function
        if mode == "asynchronous":  # other modes refuse evicted workers, without an exchange
            assert loop.counted("EXCHANGES") > known
        if min(loop.counted("DUPLICATES")) > 0:
            break
    _check(loop, mode)


METRIC_FUNCTIONS, SLEEP_S = 60, 0.02


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("mode", "trains"),
    [("asynchronous", False), ("asynchronous", True), ("synchronous", True), ("local", True)],
)
def test_metrics_of_a_killed_worker(
    tasks: LocalCluster, carrier: str, mode: str, trains: bool
) -> None:
    """Functions add to a metric when they end without an error, so once."""
    strategy = tfps.ParameterServerStrategy(tasks.cluster_resolver, consistency=MODES[mode][0])
    with strategy.scope():
        mean = keras.metrics.Mean(name="mean")
        weight = keras.Variable(0.0, name="weight")
        optimizer = keras.optimizers.SGD(-1.0)
        optimizer.build([weight])

    @tf.function
    def step() -> None:
        begin = tf.timestamp()
        mean.update_state([1.0, 3.0])
        if trains:
            optimizer.apply([tf.constant(1.0)], [weight])
        # It is nearly always here that the worker dies.
        tf.while_loop(lambda: tf.timestamp() < begin + SLEEP_S, lambda: (), ())

    for kills in range(1, 4):
        for _ in range(METRIC_FUNCTIONS):
            strategy.coordinator.schedule(step)
        expected = METRIC_FUNCTIONS * (kills - 1)
        wait_for(lambda: float(mean.count.numpy()) > 2 * (expected + 10))  # noqa: B023
        tasks.kill("worker", 1)
        starter = threading.Thread(target=tasks.restart, args=("worker", 1))
        starter.start()
        strategy.coordinator.join()
        starter.join()
        wait_for(lambda: all(strategy.alive_workers()))
        assert float(mean.count.numpy()) == 2 * METRIC_FUNCTIONS * kills
        assert float(mean.total.numpy()) == 4 * METRIC_FUNCTIONS * kills
    strategy.close()
