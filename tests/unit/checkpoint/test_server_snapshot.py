"""How a server notes the values of its variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.checkpoint.server_snapshot import copy_one_by_one

VALUES = [np.full([2, 3], number, "float32") for number in range(4)]


def test_one_value_is_read_at_a_time() -> None:
    """Otherwise copies of many tables take all threads of a server, and probes get no reply."""
    with tf.Graph().as_default():
        noted = copy_one_by_one(_variables())
    reads = {op for op in _ancestors(noted) if op.type == "ReadVariableOp"}
    assert sorted(len(reads & _ancestors(read)) for read in reads) == [0, 1, 2, 3]


def test_all_values_are_noted() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = _variables()
        session.run([variable.initializer for variable, _ in variables])
        session.run(copy_one_by_one(variables))
        noted = [tf.raw_ops.ReadVariableOp(resource=k, dtype=tf.float32) for _, k in variables]
        np.testing.assert_array_equal(session.run(noted), VALUES)


def _variables() -> list[tuple[Any, tf.Tensor]]:
    """Returns variables of the current graph, each with the handle that notes its value."""
    return [
        (
            tf.compat.v1.get_variable(f"v{i}", initializer=value, use_resource=True),
            private.create_variable_handle(
                shape=value.shape, dtype=tf.float32, shared_name=f"kept{i}", container=""
            ),
        )
        for i, value in enumerate(VALUES)
    ]


def _ancestors(operation: tf.Operation) -> set[tf.Operation]:
    found: set[tf.Operation] = set()
    left = [operation]
    while left:
        op = left.pop()
        new = {*op.control_inputs, *(tensor.op for tensor in op.inputs)} - found
        found |= new
        left += new
    return found
