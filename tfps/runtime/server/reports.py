"""Where the ticket server adds up what steps report: metric state, and their newest outputs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.wire import METRICS, OUTPUTS
from tfps.runtime.program.program import Program

NO_RESET = 0  # in the place of the number of a reset


class Reports:
    """The totals of one program on the ticket server."""

    def __init__(self, program: Program, *, runtime: Runtime, server: Server) -> None:
        self._program, self._server = program, server
        create = functools.partial(runtime.create_bookkeeping, device=server.device)
        self._metrics = create(np.zeros([program.metric_items]), name="reports/metrics")
        self._outputs = create(np.zeros([program.output_items]), name="reports/outputs")
        self._latest_reset = create(np.int64(NO_RESET), name="reports/latest_reset")

    @property
    def are_sums(self) -> bool:
        """Whether they only add up; else code of users merges them."""
        return self._program.totals.are_sums

    def count(self, counts: Any, tensors: Mapping[str, tf.Tensor]) -> None:
        """Take a step's metric state into the totals, once per ticket."""
        if self._program.metric_items:
            total = self._metrics.read_value()
            combined = self._program.totals.combine(total, tensors[METRICS])
            self._metrics.assign(tf.where(counts, combined, total), read_value=False)
        if self._program.output_items:
            newest = self._outputs.read_value()
            self._outputs.assign(tf.where(counts, tensors[OUTPUTS], newest))

    def write(self, metrics: Any, outputs: Any) -> None:
        """Write what was read, on a server that was started anew."""
        self._metrics.assign(metrics)
        self._outputs.assign(outputs)

    def latest(self) -> dict[str, tf.Tensor]:
        """Trace reading the totals and the outputs, under the mutex, as a report has them."""
        return {METRICS: self._metrics.read_value(), OUTPUTS: self._outputs.read_value()}

    def read(self, reset: tf.Tensor, initial: tf.Tensor) -> list[tf.Tensor]:
        """Trace reading the ledger, the totals and the outputs; optionally set back.

        Args:
            reset: a number of its own, or `NO_RESET`. A request may be sent again, and the first
                one arrive when steps were counted since: the number sets back once.
            initial: the totals to set back to, float64; anything where there is no reset.
        """
        with self._server.ledger.locked():
            cells = self._server.ledger.cells()
            metrics = tf.identity(self._metrics.read_value())
            outputs = tf.identity(self._outputs.read_value())
            known = tf.identity(self._latest_reset.read_value())
            is_new = tf.logical_and(reset != NO_RESET, reset != known)
            with tf.control_dependencies([metrics, known]):
                kept = tf.cond(is_new, lambda: initial, lambda: metrics)
                self._metrics.assign(tf.ensure_shape(kept, self._metrics.shape), read_value=False)
                self._latest_reset.assign(tf.where(is_new, reset, known), read_value=False)
        return [cells, metrics, outputs]
