"""Training of `fit` in rounds for which each worker takes as many batches as its speed allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.message.wire import gradient_name
from tfps.runtime.program.program import Program
from tfps.runtime.worker.exchange import microseconds
from tfps.runtime.worker.fit_loop import Visit
from tfps.runtime.worker.fit_period import PeriodLoop, PeriodStep
from tfps.transport.message import Request


class QuotaStep(PeriodStep):
    """Traces steps whose gradients become one mean, weighted by the examples of each batch.

    Clipping by norm, which needs a worker's whole gradient, acts on that mean.

    Args:
        program: what the step touches; it has one optimizer call, at its end.
        options: of `FitStep`.
    """

    def __init__(self, program: Any, **options: Any) -> None:
        super().__init__(program, **options)
        self._gradients: dict[str, tf.Tensor] = {}  # of the step that was traced last

    def apply_together(
        self, optimizer: Any, gradients: list[tf.Tensor], variables: Sequence[Any]
    ) -> None:
        self._gradients = {gradient_name(v): g for g, v in zip(gradients, variables, strict=True)}

    def nothing_gathered(self) -> dict[str, tf.Tensor]:
        return {
            gradient_name(v): tf.zeros(v.shape, _exact(tf.as_dtype(v.dtype)))
            for v in self.program.calls[0].variables
        }

    def gather(
        self, gathered: dict[str, tf.Tensor], *, examples: tf.Tensor, total: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        # A moving mean: a sum of gradients times examples may be too large for a number.
        weight = tf.math.divide_no_nan(tf.cast(examples, tf.float64), tf.cast(total, tf.float64))
        means = {}
        for name, mean in gathered.items():
            gradient = tf.cast(self._gradients[name], mean.dtype)
            means[name] = mean + (gradient - mean) * tf.cast(weight, mean.dtype)
        return means

    def send_gathered(self, gathered: Mapping[str, tf.Tensor]) -> None:
        call = self.program.calls[0]
        means = [tf.cast(gathered[gradient_name(v)], v.dtype) for v in call.variables]
        super().apply_together(call.optimizer, means, call.variables)


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


def _exact(dtype: tf.DType) -> tf.DType:
    """What a mean of many numbers is computed in."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
