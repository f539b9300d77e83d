"""Training of `fit` whose optimizers run on the worker; one exchange ends a period of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.program.program import Program
from tfps.runtime.worker.fit_loop import Visit
from tfps.runtime.worker.fit_period import PeriodLoop, PeriodStep
from tfps.runtime.worker.local import LocalUpdates


class LocalStep(LocalUpdates, PeriodStep):
    """Traces steps that change the worker's own copies, and the exchange at a period's end."""

    def prepare(self) -> None:
        self.prepare_optimizers()

    def begin_period(self) -> None:
        super().begin_period()
        weights = {id(v): tf.identity(self.copies.read(v)) for v in self.weights}
        counts = {id(v): tf.identity(self.optimizers.count(v)) for v in self.optimizers.counts}
        self._at_begin |= weights | counts

    def at_begin(self, variable: Any) -> tf.Tensor:
        return self._at_begin[id(variable)]

    def send_gathered(self, gathered: Mapping[str, tf.Tensor]) -> None:
        self.exchange(0, self.changes())


class LocalLoop(PeriodLoop):
    """Every period has as many steps.

    The last period of a round is shorter where its steps, or the data, end before.
    """

    def make_step(self, program: Program, **options: Any) -> LocalStep:
        return LocalStep(program, **options)

    def ticket_of(
        self, visit: Visit, period: tf.Tensor, *, batches: tf.Tensor, step: tf.Tensor
    ) -> tf.Tensor:
        """What would be the ticket of a period's step if each had one."""
        steps = self.program.schedule.period_steps
        number = (period - visit.first) * steps + step
        is_one = (period >= 0) & (step < steps) & (number < visit.steps)
        return tf.where(is_one, visit.first + number, NO_TICKET)
