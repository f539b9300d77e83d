"""Traces steps of `fit` whose optimizers run on the worker, with one exchange per period."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.worker.closure_run import State
from tfps.runtime.worker.fit_period import PeriodStep
from tfps.runtime.worker.local import LocalUpdates


class LocalStep(LocalUpdates, PeriodStep):
    """Traces steps that change the worker's own copies, and the exchange at the end of a period.

    All periods have the same number of steps; the last one of a ticket run may be shorter.
    """

    def join(self) -> None:
        super().join()
        self.prepare_optimizers()

    def compute_ticket(
        self, period: tf.Tensor, step: tf.Tensor, *, batches: tf.Tensor
    ) -> tf.Tensor:
        """Compute the number that a period's step would have if each step had a ticket."""
        closure_run, steps = self.closure_run, self.program.schedule.period_steps
        number = (period - closure_run.first) * steps + step
        is_one = (period >= 0) & (step < steps) & (number < closure_run.steps)
        return tf.where(is_one, closure_run.first + number, NO_TICKET)

    def begin_period(self) -> None:
        super().begin_period()
        weights = {id(v): tf.identity(self.copies.read(v)) for v in self.weights}
        counts = {id(v): tf.identity(self.read_count(v)) for v in self.local.counts}
        self._at_begin |= weights | counts

    def read_at_begin(self, variable: Any) -> tf.Tensor:
        return self._at_begin[id(variable)]

    def end_period(self, done: State, **times: tf.Tensor) -> None:
        self.exchange(0, self.compute_changes())
