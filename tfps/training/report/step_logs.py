"""What Keras shows of a step: results of metrics, and what the step itself answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.program.program import Program


def step_logs(
    model: Any, program: Program, reported: np.ndarray[Any, Any], *, chief: str
) -> dict[str, Any]:
    """Return a step's logs for the whole run; values that no metric has are of its last step.

    Args:
        model: has the totals of metrics.
        program: of the step.
        reported: the numbers that its last step has answered.
        chief: its device.
    """
    outputs, results = program.outputs, program.results
    if not isinstance(outputs, dict) or results is None:
        return dict(model.get_metrics_result())
    with private.placed_on(chief):
        known = results.compute([v._value.read_value() for v in program.metrics])
    numeric = {id(spec) for spec in program.numeric_outputs}
    values, offset = list[Any](), 0
    for position, spec in enumerate(tf.nest.flatten(outputs)):
        value = None
        if id(spec) in numeric:
            size = int(np.prod(spec.shape))
            value = reported[offset : offset + size].reshape(spec.shape)
            offset += size
        values.append(known.get(position) if value is None else value)
    logs = dict(tf.nest.pack_sequence_as(outputs, values))
    if results.others and not program.in_turn:
        mine = model.get_metrics_result()
        others = tf.nest.pack_sequence_as(
            outputs, [position in results.others for position in range(len(values))]
        )
        logs.update({name: mine[name] for name in mine if others.get(name) is True})
    return {name: value for name, value in logs.items() if value is not None}
