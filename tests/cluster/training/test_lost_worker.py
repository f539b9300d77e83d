"""A worker dies in `fit` or `evaluate`: examples are still seen once, updates applied once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import pytest

import tfps
from tests.cluster.counting import numbered
from tests.cluster.counting_job import CountingJob
from tests.cluster.kill_worker import KillWorker
from tfps.launch import LocalCluster

# All of them take minutes: a worker takes seconds to start, and `fit` ends once it has worked.
MOST_EPOCHS = 500

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def job(cluster: Callable[..., LocalCluster], carrier: str) -> Iterator[CountingJob]:
    job = CountingJob(cluster(workers=2, ps=1))
    yield job
    if job.cluster.status("worker", 1) is not None:
        # TensorFlow crashes when a process connects anew while it still waits for a lost worker.
        _restart(job)
    job.strategy.close()


def _restart(job: CountingJob) -> None:
    job.cluster.restart("worker", 1)
    while not all(job.strategy.alive_workers()):
        time.sleep(0.1)


def _arrays(job: CountingJob) -> Any:
    return None


def _shards(job: CountingJob) -> Any:
    return tfps.ShardedDataset(job.share, number=4)


# With arrays a quicker one is tests/cluster/recovery/test_restarts.py, where both are killed.
@pytest.mark.quick("_shards")
@pytest.mark.parametrize("data", [_arrays, _shards])
def test_killed_and_restarted(job: CountingJob, data: Callable[[CountingJob], Any]) -> None:
    before = job.strategy.stats()
    updates = job.updates()
    killer = KillWorker(job, restart=True)
    epochs = job.fit(killer, epochs=MOST_EPOCHS, data=data(job))
    after = job.strategy.stats()
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=epochs)
    assert after.examples_seen - before.examples_seen == epochs * job.examples
    assert killer.steps_at_death is not None
    assert killer.works_again
    first, second = before.worker_lives
    assert after.worker_lives == (first, second + 1)
    assert after.tasks["worker 1"] == "alive"
    assert sum(after.worker_steps) - sum(before.worker_steps) == epochs * job.epoch_steps


class KillEvaluatingWorker(keras.callbacks.Callback):
    """Ends worker 1 once both workers have evaluated batches, while most are still to come."""

    def __init__(self, job: CountingJob) -> None:
        super().__init__()
        self.job, self.killed = job, False
        self.before: tuple[int, ...] = ()

    def on_test_begin(self, logs: Any = None) -> None:
        self.before = self.job.strategy.stats().worker_evaluation_steps

    def done(self) -> list[int]:
        """The batches that each worker has evaluated since."""
        now = self.job.strategy.stats().worker_evaluation_steps
        return [count - before for count, before in zip(now, self.before, strict=True)]

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.killed and min(self.done()) > 0 and sum(self.done()) < self.job.epoch_steps / 2:
            self.job.cluster.kill("worker", 1)
            self.killed = True


@pytest.mark.repeats
@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["arrays", "function"])
def test_killed_while_it_evaluates(job: CountingJob, kind: str) -> None:
    updates = job.updates()
    x, labels = numbered(job.examples)
    arrays = {"x": x, "y": labels, "batch_size": job.batch_size}
    options: dict[str, Any] = {"verbose": 0, "return_dict": True}
    expected = job.model.evaluate(**arrays, **options)
    killer = KillEvaluatingWorker(job)
    data = arrays if kind == "arrays" else {"x": job.share}
    found = {}
    for _ in range(MOST_EPOCHS):  # sampled hooks may come when all but few batches are done
        found = job.model.evaluate(**data, callbacks=[killer], **options)
        if killer.killed:
            break
    assert killer.killed
    assert job.visits.counts() == [1] * job.examples
    assert sum(killer.done()) == job.epoch_steps
    assert min(killer.done()) > 0
    assert found == pytest.approx(expected)
    assert job.updates() == updates
    _restart(job)


# Quicker: an evaluating worker, above, is lost for good, too.
@pytest.mark.repeats
@pytest.mark.conformance
def test_killed_for_good(job: CountingJob) -> None:
    updates = job.updates()
    killer = KillWorker(job, restart=False)
    epochs = job.fit(killer, epochs=MOST_EPOCHS)  # the last one without it from the start
    assert epochs >= 2
    assert killer.steps_at_death is not None
    assert killer.wrong_epochs == {}
    assert job.updates() == job.updates_after(updates, epochs=epochs)
    assert killer.tasks_after["worker 1"] == "lost"
    assert killer.steps_at_death is not None
    assert not killer.works_again
