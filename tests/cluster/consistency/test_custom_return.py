"""A worker comes back, or hangs, while two others wait for each other in scheduled functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import tfps
from tests.cluster.consistency.custom_loop import CustomLoop, wait_for
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def tasks(cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return cluster(workers=3, ps=2)


@pytest.fixture(scope="module")
def strategy(tasks: LocalCluster) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(
        tasks.cluster_resolver, placement="round_robin", consistency=tfps.Synchronous()
    )
    yield strategy
    strategy.close()


def test_a_worker_comes_back(
    tasks: LocalCluster, strategy: tfps.ParameterServerStrategy, loop: CustomLoop
) -> None:
    """TensorFlow lets no function begin while it takes a worker in, and waits for those that run.

    Functions that have begun would wait for the others in their round.
    """
    workers = loop.schedule(600, slow=-1)
    wait_for(lambda: loop.updates > 5)
    tasks.kill("worker", 2)
    starter = threading.Thread(target=tasks.restart, args=("worker", 2))
    starter.start()
    loop.coordinator.join()
    starter.join()
    assert {int(worker.fetch()) for worker in workers} == {0, 1, 2}
    wait_for(lambda: all(strategy.alive_workers()))
    wait_for(lambda: set(loop.run(30)) == {0, 1, 2})
    assert len(set(strategy.stats().versions)) == 1


def test_a_worker_that_hangs_is_not_waited_for(
    tasks: LocalCluster, strategy: tfps.ParameterServerStrategy, loop: CustomLoop
) -> None:
    loop.schedule(300, slow=-1)
    wait_for(lambda: loop.updates > 5)
    tasks.suspend("worker", 1)
    try:
        loop.coordinator.join()
        updates = loop.updates
        assert updates >= 100
    finally:
        tasks.resume("worker", 1)
    wait_for(lambda: all(strategy.alive_workers()))
    wait_for(lambda: set(loop.run(30)) == {0, 1, 2})
    assert len(set(strategy.stats().versions)) == 1
