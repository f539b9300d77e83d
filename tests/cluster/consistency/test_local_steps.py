"""Workers that train by themselves: the numbers of one process, of averaged ones, and each once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.kill_worker import KillWorker
from tests.unit.numbers.modes.small_network import examples, network
from tests.unit.numbers.modes.two_workers import assert_weights_are_averaged
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

PERIOD = 4


@pytest.mark.repeats
def test_slots_are_freed(cluster: Callable[..., LocalCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, consistency=tfps.LocalSteps(2)
    )
    with strategy.scope():
        model = network("adam")
    model.fit(*examples(16), batch_size=4, verbose=0)
    slots = [variable.value.shared_name for variable in model.optimizer.variables]
    container = strategy.runtime.container

    def held() -> list[str]:
        """Whether a variable of the name is there is all that is asked."""
        with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
            handles = {
                name: tf.raw_ops.VarHandleOp(
                    dtype=tf.float32, shape=[], shared_name=f"{name}_on_worker", container=container
                )
                for name in slots
            }
            return [
                name
                for name, handle in handles.items()
                if bool(tf.raw_ops.VarIsInitializedOp(resource=handle))
            ]

    assert len(held()) == len(slots) - 1  # all but the learning rate, which the servers have
    strategy.close()
    assert held() == []


@pytest.fixture(scope="module")
def pair(cluster: Callable[..., LocalCluster]) -> LocalCluster:
    return cluster(workers=2, ps=2)


@pytest.mark.slow
def test_workers_that_meet_average_what_they_have(pair: LocalCluster) -> None:
    assert_weights_are_averaged(pair, period=PERIOD)


# Quicker ones: tickets are repeated alike in tests/cluster/training/test_lost_worker.py, and one
# process has this mode in tests/unit/one_process/test_modes.py.
@pytest.mark.repeats
@pytest.mark.conformance
@pytest.mark.parametrize(
    ("period", "shards"),
    [
        (5, None),
        # Of 250 batches each: periods are cut short where a shard ends.
        (3, 4),
    ],
)
def test_a_worker_that_dies(
    pair: LocalCluster, carrier: str, period: int, shards: int | None
) -> None:
    job = CountingJob(pair, consistency=tfps.LocalSteps(period), placement="round_robin")
    data = None if shards is None else tfps.ShardedDataset(job.share, number=shards)
    visits = EpochsOfOneVisit(job)
    assert job.fit(visits, epochs=2, data=data) == 2
    assert visits.wrong_epochs == {}
    before = int(job.model.optimizer.iterations)
    assert before == 2 * job.epoch_steps
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=500, data=data)
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert killer.wrong_epochs == {}
    assert int(job.model.optimizer.iterations) == before + epochs * job.epoch_steps
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)
    job.strategy.close()
