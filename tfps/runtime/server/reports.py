"""Collects the reports of steps on the ticket server: metric totals, and the newest outputs."""

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

NO_RESET = 0  # instead of the number of a reset


class Reports:
    """The metric totals and the newest outputs of one program, on the ticket server."""

    def __init__(self, program: Program, *, runtime: Runtime, server: Server) -> None:
        self._program, self._server = program, server
        create = functools.partial(runtime.create_bookkeeping, device=server.device)
        self._metrics = create(np.zeros([program.metric_items]), name="reports/metrics")
        self._outputs = create(np.zeros([program.output_items]), name="reports/outputs")
        self.latest_reset = create(np.int64(NO_RESET), name="reports/latest_reset")

    @property
    def are_sums(self) -> bool:
        """Whether metric states only add up; else users' code merges them."""
        return self._program.totals.are_sums

    def count(self, counts: Any, tensors: Mapping[str, tf.Tensor]) -> None:
        """Add a step's metric state to the totals, once per ticket."""
        if self._program.metric_items:
            total = self._metrics.read_value()
            combined = self._program.totals.combine(total, tensors[METRICS])
            self._metrics.assign(tf.where(counts, combined, total), read_value=False)
        if self._program.output_items:
            newest, outputs = self._outputs.read_value(), tensors[OUTPUTS]
            is_newest = tf.logical_and(counts, outputs[0] >= newest[0])  # by their tickets
            self._outputs.assign(tf.where(is_newest, outputs, newest))

    def write(self, metrics: Any, outputs: Any) -> None:
        """Write totals that were read before, on a restarted server."""
        self._metrics.assign(metrics)
        self._outputs.assign(outputs)

    def trace_latest(self) -> dict[str, tf.Tensor]:
        """Trace reading the totals and the outputs, in a report's layout, under the mutex."""
        return {METRICS: self._metrics.read_value(), OUTPUTS: self._outputs.read_value()}

    def read(self, reset: tf.Tensor, initial: tf.Tensor) -> list[tf.Tensor]:
        """Trace reading the ledger, the totals and the outputs, and optionally a reset.

        Args:
            reset: the number of the reset, or `NO_RESET`. A request may be repeated, and arrive
                after steps were counted; a number resets only once.
            initial: the totals to reset to, float64; unused without a reset.
        """
        with self._server.ledger.locked():
            cells = self._server.ledger.cells()
            metrics = tf.identity(self._metrics.read_value())
            outputs = tf.identity(self._outputs.read_value())
            last_reset = tf.identity(self.latest_reset.read_value())
            is_new = tf.logical_and(reset != NO_RESET, reset != last_reset)
            with tf.control_dependencies([metrics, last_reset]):
                latest = tf.cond(is_new, lambda: initial, lambda: metrics)
                self._metrics.assign(tf.ensure_shape(latest, self._metrics.shape), read_value=False)
                self.latest_reset.assign(tf.where(is_new, reset, last_reset), read_value=False)
        return [cells, metrics, outputs]
