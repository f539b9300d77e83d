"""A worker dies while `fit` runs: every example is still seen once, every update applied once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.launch import LocalCluster

# So many epochs take minutes: a worker takes seconds to start, and `fit` ends once it has worked.
MOST_EPOCHS = 500

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[CountingJob]:
    job = CountingJob(cluster(workers=2, ps=1))
    yield job
    if job.cluster.status("worker", 1) is not None:
        # TensorFlow crashes when a process connects anew while it still waits for a lost worker.
        job.cluster.restart("worker", 1)
        while not all(job.strategy.alive_workers()):
            time.sleep(0.1)
    job.strategy.close()


def test_killed_and_restarted(job: CountingJob) -> None:
    before = job.strategy.stats()
    updates = job.updates()
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=MOST_EPOCHS)
    after = job.strategy.stats()
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=epochs)
    assert after.examples_seen - before.examples_seen == epochs * job.examples
    assert killer.steps_at_death is not None
    assert killer.works_again
    assert after.incarnations[1] > before.incarnations[1]
    assert after.tasks["worker 1"] == "alive"
    assert sum(after.worker_steps) - sum(before.worker_steps) == epochs * job.epoch_steps


@pytest.mark.conformance
def test_killed_for_good(job: CountingJob) -> None:
    updates = job.updates()
    killer = KillWorker(job, restart=False)
    assert job.fit(killer, epochs=2) == 2  # the second one without it from the start
    assert killer.steps_at_death is not None
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=2)
    assert killer.tasks_after["worker 1"] == "lost"
    assert killer.steps_at_death is not None
    assert not killer.works_again
