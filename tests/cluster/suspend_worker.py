"""A callback that stops a worker, which stays connected and does nothing."""

from __future__ import annotations

from typing import Any

from tests.cluster.counting_job import EpochsOfOneVisit


class SuspendWorker(EpochsOfOneVisit):
    """Stops worker 1 once, after a quarter of an epoch; the test lets the worker go on."""

    suspended = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch > self.job.epoch_steps // 4 and not self.suspended:
            self.suspended = True
            self.job.cluster.suspend("worker", 1)
