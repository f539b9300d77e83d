"""Workers that train by themselves: the numbers of one process, of averaged ones, and each once."""

from __future__ import annotations

import time
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.kill_worker import KillWorker
from tests.unit.numbers.modes.small_network import BATCH, examples, network
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

LOCAL = "/job:chief/replica:0/task:0/device:CPU:0"
PERIOD = 4


@pytest.mark.slow
def test_slots_are_freed(cluster: Callable[..., LocalCluster]) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, consistency=tfps.LocalSteps(2)
    )
    with strategy.scope():
        model = network("adam")
    model.fit(*examples(16), batch_size=4, verbose=0)
    slots = [variable._value.shared_name for variable in model.optimizer.variables]
    container = strategy.runtime.container

    def held() -> list[str]:
        """Whether a variable of the name is there is all that is asked."""
        with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
            handles = {
                name: tf.raw_ops.VarHandleOp(
                    dtype=tf.float32,
                    shape=[],
                    shared_name=f"{name}_on_worker",
                    container=container,
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


@pytest.mark.quick("4")
@pytest.mark.parametrize("period", [1, PERIOD])
def test_workers_that_meet_average_what_they_have(pair: LocalCluster, period: int) -> None:
    """By plain SGD, which keeps nothing: who of two workers takes which period does not matter."""
    rounds = 20
    x, y = examples(2 * period * rounds * BATCH)
    strategy = tfps.ParameterServerStrategy(
        pair.cluster_resolver,
        placement="round_robin",
        consistency=tfps.LocalSteps(period, synchronous=True),
    )
    with strategy.scope():
        model = network(keras.optimizers.SGD(0.2))
    before = model.get_weights()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    after, stats = model.get_weights(), strategy.stats()
    iterations = int(model.optimizer.iterations)
    strategy.close()
    with tf.device(LOCAL):
        worker, expected = network(keras.optimizers.SGD(0.2)), before
        for at in range(0, len(x), 2 * period * BATCH):
            results = []
            for begin in (at, at + period * BATCH):
                worker.set_weights(expected)
                for first_row in range(begin, begin + period * BATCH, BATCH):
                    rows = slice(first_row, first_row + BATCH)
                    worker.train_on_batch(x[rows], y[rows])
                results.append(worker.get_weights())
            expected = [(a + b) / 2 for a, b in zip(*results, strict=True)]
    for weight, other, first in zip(after, expected, before, strict=True):
        assert np.linalg.norm(weight - other) <= 5e-6 * np.linalg.norm(other - first)
    assert stats.versions == (rounds, rounds)
    assert iterations == rounds * period
    assert stats.worker_steps == (rounds * period, rounds * period)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("period", "shards"),
    [
        (5, None),
        # Of 250 batches each: periods are cut short where a shard ends.
        pytest.param(3, 4, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies(
    pair: LocalCluster, carrier: str, period: int, shards: int | None
) -> None:
    job = CountingJob(pair, consistency=tfps.LocalSteps(period), placement="round_robin")
    data = None if shards is None else tfps.Shards(job.share, number=shards)
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
