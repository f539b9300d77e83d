"""A worker hangs (SIGSTOP) while `fit` runs: `fit` does not wait, and its return does no harm."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tfps.launch import LocalCluster

MOST_EPOCHS = 20
DEADLINE_S = 60.0

pytestmark = pytest.mark.timeout(180)


class StopWorker(EpochsOfOneVisit):
    """Stops a worker in the middle of an epoch.

    Args:
        job: whose.
        index: of the worker.
        resume_after_s: let it go on by itself; None: at the end of that epoch.
    """

    def __init__(
        self, job: CountingJob, index: int, *, resume_after_s: float | None = None
    ) -> None:
        super().__init__(job)
        self.index, self.resume_after_s = index, resume_after_s
        self.stopped_in: int | None = None
        self.tasks_while_stopped: dict[str, str] = {}
        self.works_again_in: int | None = None
        self._epoch = 0
        self._before = job.strategy.stats()
        self._timer: threading.Timer | None = None

    def _resume(self) -> None:
        self.job.cluster.resume("worker", self.index)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._before = epoch, self.job.strategy.stats()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch % 10 or self.stopped_in is not None:
            return
        now = self.job.strategy.stats()
        steps = [a - b for a, b in zip(now.worker_steps, self._before.worker_steps, strict=True)]
        # Sampled hooks lag behind: this one may come when the epoch is all but over.
        if steps[self.index] and sum(steps) < 0.7 * self.job.epoch_steps:
            self.job.cluster.suspend("worker", self.index)
            self.stopped_in = self._epoch
            if self.resume_after_s is not None:
                self._timer = threading.Timer(self.resume_after_s, self._resume)
                self._timer.start()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        stats = self.job.strategy.stats()
        if epoch == self.stopped_in and self._timer is None:
            self.tasks_while_stopped = stats.tasks
            self._resume()
            _wait_for(lambda: self.job.strategy.tasks[f"worker {self.index}"] == "alive")
        has_worked = stats.worker_steps[self.index] > self._before.worker_steps[self.index]
        if self.stopped_in is not None and epoch > self.stopped_in and has_worked:
            self.works_again_in = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        if self._timer:
            self._timer.join()


def _wait_for(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


@pytest.mark.slow
def test_one_of_two(tasks: Callable[..., LocalCluster]) -> None:
    job = CountingJob(tasks(workers=2, ps=2))
    before, stopper = job.strategy.stats(), StopWorker(job, 1)
    epochs = job.fit(stopper, epochs=MOST_EPOCHS)
    after = job.strategy.stats()
    assert stopper.stopped_in is not None
    assert stopper.tasks_while_stopped["worker 1"] == "lost"
    assert stopper.tasks_while_stopped["worker 0"] == "alive"
    assert stopper.works_again_in == stopper.stopped_in + 1
    assert stopper.wrong_epochs == {}
    assert set(job.updates()) == {epochs * job.epoch_steps}
    assert len(set(after.versions)) == 1
    assert after.examples_seen == epochs * job.examples
    assert sum(after.worker_steps) == epochs * job.epoch_steps
    assert before.worker_lives == (1, 1)
    assert after.worker_lives == (1, 2)
    assert set(after.tasks.values()) == {"alive"}
    job.strategy.close()


@pytest.mark.repeats
def test_the_only_one(tasks: Callable[..., LocalCluster], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tfps")
    job = CountingJob(tasks(workers=1, ps=1))
    stopper = StopWorker(job, 0, resume_after_s=8.0)
    epochs = job.fit(stopper, epochs=MOST_EPOCHS)
    assert stopper.stopped_in is not None
    assert stopper.wrong_epochs == {}
    assert set(job.updates()) == {epochs * job.epoch_steps}
    said = [record.message for record in caplog.records if "no worker responds" in record.message]
    assert len(said) == 1
    assert f"worker 0 at {job.cluster.spec.address('worker', 0)}" in said[0]
    assert "SIGCONT" in said[0]
    job.strategy.close()
