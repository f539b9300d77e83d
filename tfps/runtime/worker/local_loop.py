"""The closure of a worker that trains by itself between two exchanges."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.program.program import Program
from tfps.runtime.worker.fit_local import LocalStep
from tfps.runtime.worker.fit_loop import Visit
from tfps.runtime.worker.fit_period import PeriodLoop


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
        number = (period - visit.first) * self.program.period_steps + step
        is_one = (period >= 0) & (step < self.program.period_steps) & (number < visit.steps)
        return tf.where(is_one, visit.first + number, NO_TICKET)
