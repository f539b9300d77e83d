"""Callbacks that kill a parameter server while `fit` runs."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.cluster.counting import UnitGradients
from tests.cluster.counting_job import CountingJob, EpochsOfOneVisit

KILL_AFTER = 250


class TracedUnits(UnitGradients):
    """A layer that also counts how often it is traced."""

    traces = 0

    def call(self, inputs: Any) -> Any:
        type(self).traces += 1
        return super().call(inputs)


class KillServer(EpochsOfOneVisit):
    """Kills a server, once in an epoch; the supervisor of the tasks starts it again."""

    def __init__(self, job: CountingJob, index: int, *, epoch: int = 0) -> None:
        super().__init__(job)
        self.index, self.epoch = index, epoch
        self.traces: int | None = None
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._epoch == self.epoch and batch >= KILL_AFTER and self.traces is None:
            self.traces = TracedUnits.traces
            os.kill(self.job.cluster.pid("ps", self.index), signal.SIGKILL)


class KillForGood(KillServer):
    """Kills the server so that the supervisor does not start it again."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch >= KILL_AFTER and self.traces is None:
            self.traces = TracedUnits.traces
            self.job.cluster.kill("ps", self.index)
