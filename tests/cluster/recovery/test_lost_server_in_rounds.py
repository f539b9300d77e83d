"""A parameter server is killed while scheduled functions take rounds, which ends the job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

import tfps
from tests.cluster.many_calls import ManyCalls
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(300)]

BEFORE, SAVE_EVERY, LATER = 4, 10, 60  # functions


@pytest.fixture
def fresh() -> Iterator[LocalCluster]:
    with LocalCluster(workers=2, ps=2, environment={"TFPS_LOGICAL_CPUS": "1"}) as cluster:
        yield cluster


# Server that is killed, transport, backup workers, `FaultTolerance.every_steps`.
CASES = {
    "another": (1, "direct", 0, SAVE_EVERY),
    "hands out tickets": (0, "grpc", 0, SAVE_EVERY),
    "with a backup worker": (1, "direct", 1, SAVE_EVERY),
    "without a checkpoint": (0, "direct", 0, None),
}


# A server that is killed in rounds of `fit`: test_lost_server_returns.py. Without a cluster, when
# checkpoints are saved: tests/unit/one_process/test_function_checkpoints.py.
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_error_names_the_newest_checkpoint(
    case: tuple[int, str, int, int | None], fresh: LocalCluster, tmp_path: Path
) -> None:
    index, transport, backup_workers, every_steps = case
    strategy = tfps.ParameterServerStrategy(
        fresh.cluster_resolver,
        placement="round_robin",
        consistency=tfps.Synchronous(backup_workers=backup_workers),
        transport=transport,
        fault_tolerance=tfps.FaultTolerance(
            checkpoints=tmp_path / "checkpoints", every_steps=every_steps
        ),
    )
    loop = ManyCalls(strategy, pause_s=0.03)
    manager = tfps.CheckpointManager(loop.model, tmp_path / "checkpoints")
    loop.schedule(BEFORE)
    loop.coordinator.join()
    manager.wait()
    loop.schedule(LATER)
    manager.wait()
    os.kill(fresh.pid("ps", index), signal.SIGKILL)
    message = f"The newest checkpoint in {manager.directory} is number 7: start the job again"
    if every_steps is None:
        message = f"There is no checkpoint in {manager.directory}: start the job again"
    with pytest.raises(tf.errors.UnavailableError) as found:  # noqa: PT012 - either says so
        loop.schedule(2)
        loop.coordinator.join()
    assert message in str(found.value)
    with pytest.raises(tf.errors.UnavailableError) as found:
        loop.schedule(1)
    assert message in str(found.value)
    numbers = [manifest.number for manifest in manager.checkpoints]
    assert numbers == ([] if every_steps is None else [5, 6, 7])
    strategy.close()
