"""Traces rounds of `fit` in which the number of batches of each worker follows its speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.message.duration import measure_microseconds
from tfps.runtime.message.wire import get_gradient_name
from tfps.runtime.worker.closure_run import State
from tfps.runtime.worker.fit_period import PeriodStep
from tfps.transport.message import Request


class QuotaStep(PeriodStep):
    """Traces steps whose gradients become one mean, weighted by the examples of each batch.

    The ticket server sets the number of batches for a worker's next gradient. Clipping by norm,
    which needs a worker's whole gradient, acts on the mean.
    """

    _gradients: Mapping[str, tf.Tensor]  # of the latest traced step

    def compute_ticket(
        self, period: tf.Tensor, step: tf.Tensor, *, batches: tf.Tensor
    ) -> tf.Tensor:
        return tf.where((period >= 0) & (step < batches), period + step, NO_TICKET)

    def apply_together(
        self, optimizer: Any, gradients: list[tf.Tensor], variables: Sequence[Any]
    ) -> None:
        self._gradients = {
            get_gradient_name(v): g for g, v in zip(gradients, variables, strict=True)
        }

    def create_gathered(self) -> dict[str, tf.Tensor]:
        return {
            get_gradient_name(v): tf.zeros(v.shape, _choose_mean_dtype(tf.as_dtype(v.dtype)))
            for v in self.program.calls[0].variables
        }

    def gather(
        self, gathered: dict[str, tf.Tensor], *, examples: tf.Tensor, total: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        # A moving mean: a sum of gradients times examples could overflow.
        weight = tf.math.divide_no_nan(tf.cast(examples, tf.float64), tf.cast(total, tf.float64))
        means = {}
        for name, mean in gathered.items():
            gradient = tf.cast(self._gradients[name], mean.dtype)
            means[name] = mean + (gradient - mean) * tf.cast(weight, mean.dtype)
        return means

    def end_period(self, done: State, *, begin: tf.Tensor, waited: tf.Tensor) -> None:
        gathered, call = done["gathered"], self.program.calls[0]
        computed = measure_microseconds(begin, until=[done["steps"], *gathered.values()])
        # The wait for input counts: it slows a worker down as a slow processor does.
        pace = {Request.BATCH_MICROSECONDS: (waited + computed) // done["steps"]}
        self.fields = {**self.fields, **pace}
        means = [tf.cast(gathered[get_gradient_name(v)], v.dtype) for v in call.variables]
        super().apply_together(call.optimizer, means, call.variables)


def _choose_mean_dtype(dtype: tf.DType) -> tf.DType:
    """Return the type in which a mean of many numbers is computed."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
