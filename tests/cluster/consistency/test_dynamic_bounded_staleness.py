"""Fast workers pass the lower bound where that saves waiting, and never the upper one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import pytest

import tfps
from tests.cluster.consistency.slow_input import slow_input
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.kill_worker import KillWorker
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

STEPS = 60
MODE = tfps.DynamicBoundedStaleness(min_bound_steps=1, max_bound_steps=6)


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[CountingJob]:
    job = CountingJob(cluster(workers=2, ps=2), consistency=MODE, placement="round_robin")
    yield job
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)  # TensorFlow crashes when a process connects anew in the meantime
    job.strategy.close()


@pytest.mark.slow
@pytest.mark.conformance
def test_each_example_and_update_counts_once(job: CountingJob) -> None:
    updates, visits = job.updates(), EpochsOfOneVisit(job)
    assert job.fit(visits, epochs=3) == 3
    assert visits.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=3)
    largest = job.strategy.stats().clock_gap_steps[1]
    assert largest is not None
    assert largest <= MODE.max_bound_steps


@pytest.mark.slow
@pytest.mark.conformance
def test_a_worker_that_dies_is_not_waited_for(job: CountingJob) -> None:
    updates, killer = job.updates(), KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=500)
    assert killer.works_again
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=epochs)


# Without a cluster: tests/unit/consistency/test_gates.py has who waits, and
# tests/unit/one_process/test_modes.py a `fit`.
@pytest.mark.slow
@pytest.mark.parametrize("largest", [6, 1])
def test_fast_workers_wait(
    cluster: Callable[..., LocalCluster], tmp_path: Path, largest: int
) -> None:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=2, ps=2).cluster_resolver,
        consistency=tfps.DynamicBoundedStaleness(1, largest),
    )
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(slow_input(STEPS, tmp_path), epochs=1, verbose=0)
    stats = strategy.stats()
    assert stats.worker_steps == (STEPS, STEPS)
    gap = stats.clock_gap_steps[1]
    assert gap is not None
    if largest == 6:  # a fast worker that is let go on gets somewhere before the slow one's push
        assert 1 < gap <= 6
    else:
        assert gap == 1
    assert max(stats.gradient_staleness_updates) <= 2 * (largest + 1)
    strategy.close()
