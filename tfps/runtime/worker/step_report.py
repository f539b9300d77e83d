"""What a step reports when it is done: the state of its metrics, and its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.metrics.additivity import adds_up
from tfps.runtime.message.wire import METRICS, OUTPUTS
from tfps.runtime.program.program import Program
from tfps.runtime.worker.worker_copies import WorkerCopies


class StepReport:
    """Traces the report of one step, from the worker's copies of metric state."""

    def __init__(self, program: Program, *, copies: WorkerCopies) -> None:
        self._program, self._copies = program, copies
        self._graph = private.current_graph()
        self._adding_up: dict[int, list[tf.Tensor]] = {}

    def watch(
        self, is_first: tf.Tensor, metric: Any, update: Any, arguments: Any, options: dict[str, Any]
    ) -> None:
        """Find out with a ticket run's first batch, at an update, if states of a metric add up."""
        if private.current_graph() is not self._graph:
            return  # inside tf.cond or a nested function, from which nothing can be brought out
        bases = self._program.totals.bases_of(metric)
        fits = tf.cond(
            is_first,
            lambda: adds_up(metric.variables, bases, update, arguments, options),
            lambda: tf.constant(True),
        )
        self._adding_up.setdefault(id(metric), []).append(fits)

    def made_of(self, outputs: Any, *, shares: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """The report of a step with these outputs, and these shares of the devices in the batch."""
        totals = self._program.totals
        refused = [
            tf.logical_not(tf.reduce_all(self._adding_up.get(id(metric), [True])))
            for metric in totals.unproven
        ]
        reports = [
            totals.report(
                [self._copies.on(device, v).read_value() for v in self._program.metrics], refused
            )
            for device in range(len(self._copies))
        ]
        metrics = totals.of_devices(reports, shares)
        specs = tf.nest.flatten(self._program.outputs)
        flat = [
            tensor
            for tensor, spec in zip(tf.nest.flatten(outputs), specs, strict=True)
            if any(spec is reported for reported in self._program.numeric_outputs)
        ]
        return {METRICS: metrics, OUTPUTS: _flat_float64(flat)}


def empty_report(program: Program) -> dict[str, tf.Tensor]:
    """What stands for the report of a step that was not taken."""
    return {
        METRICS: tf.zeros([program.metric_items], tf.float64),
        OUTPUTS: tf.zeros([program.output_items], tf.float64),
    }


def _flat_float64(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    if not tensors:
        return tf.zeros([0], tf.float64)
    return tf.concat([tf.reshape(tf.cast(t, tf.float64), [-1]) for t in tensors], 0)
