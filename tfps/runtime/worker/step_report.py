"""Traces the report of a step: the states of its metrics, and its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.runtime.message.wire import METRICS, OUTPUTS
from tfps.runtime.program.metric_totals import flatten_values
from tfps.runtime.program.program import Program
from tfps.runtime.worker.worker_copies import WorkerCopies

SERIALIZED = "serialized"  # a ticket, and outputs of its step that stay on the worker


def step_report(
    program: Program,
    ticket: tf.Tensor,
    outputs: Any,
    *,
    copies: WorkerCopies,
    shares: Sequence[tf.Tensor],
    drawn: Sequence[tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Trace the report of a step, from the worker's copies of metric state.

    Args:
        program: the program of the step.
        ticket: the ticket of the step.
        outputs: the outputs of the step.
        copies: the copies after the step.
        shares: the shares of the devices in its batch.
        drawn: the change of each generator's state; all devices draw as often as the first.
    """
    reports = [
        flatten_values(
            [
                *(copies.get_copy(device, v).read_value() for v in program.metrics),
                *([tf.zeros_like(each) for each in drawn] if device else drawn),
            ]
        )
        for device in range(len(copies))
    ]
    specs = tf.nest.flatten(program.outputs)
    flat = [
        tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], -1)
        if tensor.dtype.is_complex
        else tensor
        for tensor, spec in zip(tf.nest.flatten(outputs), specs, strict=True)
        if any(spec is reported for reported in program.numeric_outputs)
    ]
    metrics = program.totals.combine_devices(reports, shares)
    report = {METRICS: metrics, OUTPUTS: flatten_values([ticket, *flat] if flat else [])}
    if program.serialized_outputs:
        others = [tf.nest.flatten(outputs)[position] for position in program.serialized_outputs]
        parts = map(tf.io.serialize_tensor, tf.nest.flatten(others, expand_composites=True))
        number = tf.strings.as_string(ticket, width=20, fill="0")  # texts in the tickets' order
        report[SERIALIZED] = tf.stack([number, *parts])
    return report


def empty_report(program: Program) -> dict[str, tf.Tensor]:
    """Return the report of a step that was not taken."""
    report = {
        METRICS: tf.zeros([program.metric_items], tf.float64),
        OUTPUTS: tf.zeros([program.output_items], tf.float64),
    }
    if specs := [*program.serialized_outputs.values()]:
        report[SERIALIZED] = tf.fill([1 + len(tf.nest.flatten(specs, expand_composites=True))], "")
    return report
