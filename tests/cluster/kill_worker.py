"""A callback that ends a worker in the middle of an epoch."""

from __future__ import annotations

import threading
from typing import Any

from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit


class KillWorker(EpochsOfOneVisit):
    """Ends worker 1 in the middle of an epoch, and starts it again if asked to.

    With a restart it lets training go on until the new incarnation has worked, otherwise for one
    epoch more.
    """

    def __init__(self, job: CountingJob, *, restart: bool) -> None:
        super().__init__(job)
        self.steps_at_death: int | None = None
        self.steps_after = 0
        self._began_without_it = False
        self._before = job.strategy.stats()
        self.tasks_after: dict[str, str] = {}
        self._starter = threading.Thread(target=self._start) if restart else None

    def _start(self) -> None:
        self.job.cluster.restart("worker", 1)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began_without_it = self.steps_at_death is not None
        self._before = self.job.strategy.stats()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch % 10 or self.steps_at_death is not None:
            return
        now = self.job.strategy.stats()
        has_worked = now.worker_steps[1] > self._before.worker_steps[1]
        # Sampled hooks lag behind: this one may come when the epoch is all but over.
        if (
            has_worked
            and now.updates_applied - self._before.updates_applied < 0.8 * self.job.epoch_steps
        ):
            self.job.cluster.kill("worker", 1)
            self.steps_at_death = self.job.strategy.stats().worker_steps[1]
            if self._starter:
                self._starter.start()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        stats = self.job.strategy.stats()
        self.steps_after, self.tasks_after = stats.worker_steps[1], stats.tasks
        if self.works_again if self._starter else self._began_without_it:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        if self._starter:
            self._starter.join()

    @property
    def works_again(self) -> bool:
        """Whether worker 1 has done steps after its death."""
        # A request that was on its way when the worker died may still count.
        return self.steps_at_death is not None and self.steps_after > self.steps_at_death + 1
