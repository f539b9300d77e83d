"""The closure of a worker that takes as many batches for a round as its speed allows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.program.program import Program
from tfps.runtime.worker.exchange_times import microseconds
from tfps.runtime.worker.fit_loop import Visit
from tfps.runtime.worker.fit_period import PeriodLoop
from tfps.runtime.worker.fit_quota import QuotaStep
from tfps.transport.message import Request


class QuotaLoop(PeriodLoop):
    """The ticket server says how many tickets a worker gets for its next gradient."""

    def make_step(self, program: Program, **options: Any) -> QuotaStep:
        return QuotaStep(program, **options)

    def ticket_of(
        self, visit: Visit, period: tf.Tensor, *, batches: tf.Tensor, step: tf.Tensor
    ) -> tf.Tensor:
        return tf.where((period >= 0) & (step < batches), period + step, NO_TICKET)

    def fields_about(
        self, begin: tf.Tensor, *, state: dict[str, Any], done: dict[str, Any]
    ) -> dict[Request, tf.Tensor]:
        computed = microseconds(begin, until=[done["steps"], *done["gathered"].values()])
        # A slow input makes a worker as slow as a slow processor does.
        return {Request.BATCH_MICROSECONDS: (state["wait"] + computed) // done["steps"]}
