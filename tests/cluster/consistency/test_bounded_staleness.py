"""Workers that keep to a bound count each example once, and never wait for a lost one.

How they wait for the slowest: tests/unit/one_process/test_requests_of_fit.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import tfps
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.cluster.kill_worker import KillWorker
from tests.cluster.suspend_worker import SuspendWorker
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)

STEPS, EPOCHS = 60, 2


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[CountingJob]:
    job = CountingJob(
        cluster(workers=2, ps=2), consistency=tfps.BoundedStaleness(2), placement="round_robin"
    )
    yield job
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)  # TensorFlow crashes when a process connects anew in the meantime
    job.strategy.close()


@pytest.mark.repeats
@pytest.mark.conformance
def test_each_example_and_update_counts_once(job: CountingJob) -> None:
    before, updates = job.strategy.stats(), job.updates()
    visits = EpochsOfOneVisit(job)
    assert job.fit(visits, epochs=EPOCHS) == EPOCHS
    assert visits.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=EPOCHS)
    after = job.strategy.stats()
    largest = after.clock_gap_steps[1]
    assert largest is not None
    assert largest <= 2
    steps = [b - a for a, b in zip(before.worker_steps, after.worker_steps, strict=True)]
    # No worker is ahead for long; an epoch ends with its tickets, and its begin is not common.
    assert sum(steps) == EPOCHS * job.epoch_steps
    assert min(steps) > 0.3 * sum(steps)


@pytest.mark.repeats
@pytest.mark.conformance
def test_a_worker_that_dies_is_not_waited_for(job: CountingJob) -> None:
    updates = job.updates()
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=500)
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=epochs)


@pytest.mark.repeats
def test_a_worker_that_hangs_is_not_waited_for(job: CountingJob) -> None:
    updates = job.updates()
    suspend = SuspendWorker(job)
    try:
        assert job.fit(suspend, epochs=1) == 1
    finally:
        job.cluster.resume("worker", 1)
    assert suspend.suspended
    assert suspend.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=1)
