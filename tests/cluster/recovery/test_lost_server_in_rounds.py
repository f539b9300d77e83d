"""A parameter server is killed while scheduled functions take rounds: nothing is lost, or twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tfps
from tests.cluster.many_calls import ManyCalls
from tfps.bridge import closure_queue
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(300)

BEFORE, FIRST, SECOND = 4, 60, 20  # functions; even, so that each round has two


class NumberedCalls(ManyCalls):
    """Weights grow by the numbers of the functions; a variable counts these, once for each."""

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        super().__init__(strategy)
        with strategy.scope():
            self.runs = self.model.add_weight(
                shape=(), initializer="zeros", dtype="int64", trainable=False, name="runs"
            )
        self.numbered = tf.function(self._numbered)
        self.results: list[Any] = []

    def _numbered(self, number: tf.Tensor) -> tf.Tensor:
        self.traces += 1
        for call in tf.range(self.calls):
            gradient = self._one(call) * tf.cast(number, tf.float32)
            self.optimizer.apply([gradient, gradient], self.weights)
        self.runs.assign_add(1)
        return 10 * number

    def schedule(self, functions: int) -> None:
        for number in range(self.scheduled, self.scheduled + functions):
            args = (tf.constant(number),)
            self.results.append(self.coordinator.schedule(self.numbered, args=args))
        self.scheduled += functions

    def check(self) -> None:
        """What holds whoever was lost, in rounds of whichever gradients."""
        stats = self.strategy.stats()
        assert int(self.runs.numpy()) == self.scheduled
        assert set(stats.versions) == {self.iterations()}
        assert stats.updates_lost == 0
        assert self.coordinator.fetch(self.results) == [10 * n for n in range(self.scheduled)]

    def check_rounds_of_two(self) -> None:
        """The numbers of a job that nothing has happened to."""
        assert self.counted("staleness") == [self.expected, self.expected]
        assert self.iterations() == self.expected // 2
        total = self.calls * sum(range(self.scheduled)) / 2
        assert self.values() == dict.fromkeys(self.strategy.runtime.topology.servers, total)


@pytest.fixture
def fresh() -> Iterator[LocalCluster]:
    with LocalCluster(workers=2, ps=2, environment={"TFPS_LOGICAL_CPUS": "1"}) as cluster:
        yield cluster


def _kill(cluster: LocalCluster, index: int) -> None:
    os.kill(cluster.pid("ps", index), signal.SIGKILL)  # who keeps the tasks starts it again


CASES = {
    "another": ("direct", 1, 0),
    "hands out tickets": ("direct", 0, 0),
    "another by grpc": ("grpc", 1, 0),
    "hands out tickets by grpc": ("grpc", 0, 0),
    "with a backup worker": ("direct", 1, 1),
    "with a backup worker by grpc": ("grpc", 0, 1),
}


# A server that is killed in rounds of `fit`: test_lost_server_returns.py. Without a cluster, what
# is repeated: tests/unit/one_process/test_functions_repeat.py.
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_functions_are_repeated(
    case: tuple[str, int, int],
    fresh: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport, index, backup_workers = case
    # Two workers shall share every round, however busy the machine is.
    monkeypatch.setattr(closure_queue, "LINGER_S", 2.0)
    strategy = tfps.ParameterServerStrategy(
        fresh.cluster_resolver,
        placement="round_robin",
        consistency=tfps.Synchronous(backup_workers=backup_workers),
        transport=transport,
    )
    loop = NumberedCalls(strategy)
    manager = tfps.CheckpointManager(loop.model, tmp_path / "checkpoints")
    strategy.recovery = tfps.Recovery(checkpoints=manager)
    loop.schedule(BEFORE)
    loop.coordinator.join()
    manager.save(background=False)
    traces = loop.traces
    loop.schedule(FIRST)
    loop.wait_for(loop.calls * 16)
    _kill(fresh, index)  # with functions under way, and others that wait
    loop.schedule(SECOND)
    loop.coordinator.join()
    loop.check()
    repeated = strategy.stats().functions_repeated
    assert 0 < repeated < FIRST
    told = fresh.keeper.restarts[-1]
    assert told.startswith(f"ps {index} (SIGKILL, all servers back at update ")
    assert told.endswith(f": {repeated} functions are repeated)")
    before = loop.values()
    _kill(fresh, 1 - index)  # at rest: who looks at a weight waits until it is what it was
    after = loop.values()
    loop.check()
    assert strategy.stats().functions_repeated == repeated + FIRST + SECOND
    if not backup_workers:
        assert after == before
        loop.check_rounds_of_two()
    assert loop.traces == traces
    strategy.close()
