"""Traces steps of `fit` whose optimizers run on the worker, with one exchange per period."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.worker.fit_step import FitStep
from tfps.runtime.worker.local import LocalUpdates


class LocalStep(LocalUpdates, FitStep):
    """Traces steps that change the worker's own copies, and the exchange at the end of a period.

    All periods have the same number of steps; the last one of a ticket run may be shorter. State
    that the steps assign stays in the worker's copies until the exchange.
    """

    is_single_step = False
    _at_begin: dict[int, tf.Tensor]  # the values of variables at the period's begin

    def join(self) -> None:
        super().join()
        self.prepare_optimizers()

    def compute_ticket(self, period: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """Compute the number that a period's step would have if each step had a ticket.

        Args:
            period: the ticket that the servers have issued.
            step: the index of the step in the period, from 0.

        Returns:
            The ticket of the step, for data and seeds; `NO_TICKET` after the period's end.
        """
        closure_run, steps = self.closure_run, self.program.schedule.period_steps
        number = (period - closure_run.first) * steps + step
        is_one = (period >= 0) & (step < steps) & (number < closure_run.steps)
        return tf.where(is_one, closure_run.first + number, NO_TICKET)

    def begin_period(self) -> None:
        """Record the values from which the exchange at the period's end computes differences."""
        values = {
            id(v): tf.identity(self.copies.read(v)) for v in (*self.program.state, *self.weights)
        }
        counts = {id(v): tf.identity(self.read_count(v)) for v in self.local.counts}
        self._at_begin = values | counts
        self.kept.begin()

    def run(self, batch: Any) -> dict[str, tf.Tensor]:
        report = super().run(batch)
        if len(self.copies) > 1:
            self.copies.merge_into_all(self.program.state, self._before, self.shares)
        return report

    def read_at_begin(self, variable: Any) -> tf.Tensor:
        return self._at_begin[id(variable)]

    def read_before(self, variable: Any) -> tf.Tensor:
        return self._at_begin[id(variable)]

    def read_state(self, variable: Any) -> tf.Tensor:
        return self.copies.read(variable)
