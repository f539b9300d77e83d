"""A task of this machine that hangs and is not stopped is killed and started again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfps
from tests.cluster.blocked_process import blocked
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit
from tests.harness.leaks import assert_no_leaks
from tfps.launch import LocalCluster
from tfps.recovery.events import EventLog

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]

MOST_EPOCHS = 500
# Short, so that the test is; not for the stopped ones, which these are not.
RESTARTS = tfps.FaultTolerance(hang_timeout_s=2.0, no_worker_timeout_s=600.0)


class Block(EpochsOfOneVisit):
    """Blocks a task within the second epoch, then trains on until it has been started again."""

    def __init__(self, job: CountingJob, task: tuple[str, int]) -> None:
        super().__init__(job)
        self.task, self.stack = task, contextlib.ExitStack()
        self.epochs = 0
        self.is_done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.epochs == 1 and batch > 100 and not self.is_done:
            self.is_done = True
            self.stack.enter_context(blocked(self.job.cluster.pid(*self.task)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.epochs = epoch + 1
        is_back = self.job.cluster.supervisor.restarts and self._works()
        self.model.stop_training = bool(self.is_done and is_back)

    def _works(self) -> bool:
        kind, index = self.task
        return kind == "ps" or self.job.strategy.stats().worker_lives[index] > 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with (
        assert_no_leaks(),
        LocalCluster(
            workers=2, ps=2, fault_tolerance=RESTARTS, log_dir=tmp_path / "logs"
        ) as cluster,
    ):
        yield cluster


@pytest.mark.parametrize("transport", ["direct", "grpc"])
@pytest.mark.parametrize("task", [("worker", 1), ("ps", 0), ("ps", 1)], ids="{0[0]}-{0[1]}".format)
def test_training_goes_on(
    task: tuple[str, int], transport: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    fault_tolerance = tfps.FaultTolerance(checkpoints=tmp_path / "checkpoints", every_steps=100)
    job = CountingJob(
        cluster,
        transport=transport,
        placement="round_robin",
        fault_tolerance=fault_tolerance if task[0] == "ps" else None,
    )
    blocker = Block(job, task)
    with blocker.stack:
        epochs = job.fit(blocker, epochs=MOST_EPOCHS)
        steps = epochs * job.epoch_steps
        assert blocker.wrong_epochs == {}
        stats = job.strategy.stats()
        assert stats.examples_seen == epochs * job.examples
        assert stats.versions == (steps, steps)
        name = f"{task[0]} {task[1]}"
        [restart] = cluster.supervisor.restarts
        assert restart.startswith(f"{name} (hung, SIGKILL")
        records = EventLog(cluster.log_dir / "events.jsonl").read()
        [died] = [record for record in records if record.event == "task_died"]
        assert (died.task, died.status, died.reason) == (name, -9, "did not respond for 2 s")
        job.strategy.close()
