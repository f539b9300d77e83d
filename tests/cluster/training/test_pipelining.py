"""`Asynchronous(pipeline_steps=1)`: nothing is lost or done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tfps
from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster]) -> Iterator[CountingJob]:
    job = CountingJob(cluster(workers=2, ps=2), consistency=tfps.Asynchronous(pipeline_steps=1))
    yield job
    job.strategy.close()


def test_two_workers_lose_nothing(job: CountingJob) -> None:
    before, seen = job.updates(), job.strategy.stats().examples_seen
    assert job.fit(epochs=2) == 2
    assert job.updates() == job.updates_after(before, epochs=2)
    assert set(job.visits.counts()) == {1}
    assert job.strategy.stats().examples_seen - seen == 2 * job.examples


def test_a_killed_worker_takes_nothing_with_it(job: CountingJob) -> None:
    before = job.updates()
    killer = KillWorker(job, restart=False)
    epochs = job.fit(killer, epochs=100)  # the callback ends it after an epoch without the worker
    assert killer.steps_at_death is not None
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(before, epochs=epochs)
    job.cluster.restart("worker", 1)
