"""Operations of a graph under way that do the same wherever they stand in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

# Reads of vocabularies; the next batch, which follows the one before; the name of a variable; what
# raises an error, or does nothing.
_MOVABLE = frozenset(
    {"LookupTableFindV2", "LookupTableSizeV2", "IteratorGetNext", "VarHandleOp", "Assert"}
)


def is_movable(operation: Any) -> bool:
    """Whether an operation reads and writes nothing that a step changes.

    Checks do so, look-ups in vocabularies, and batches of an iterator: what else touches one of
    these keeps its order with them.
    """
    if operation.type in _MOVABLE or not operation.op_def.is_stateful:
        return True
    graphs = list(_called(operation))
    return bool(graphs) and all(is_movable(each) for g in graphs for each in g.get_operations())


def runs_after(operation: Any) -> Iterator[Any]:
    """The operations that one runs after, those included that TensorFlow will order before it."""
    yield from (tensor.op for tensor in operation.inputs)
    yield from operation.control_inputs
    for tensor in operation.inputs:
        if tensor.dtype == tf.resource:
            yield from (user for user in tensor.consumers() if user._id < operation._id)


def let_move(operation: Any) -> None:
    """Let a movable operation run as soon as what it needs is there.

    TensorFlow orders what touches no resource, but has an effect, one after the other.
    """
    touches = any(tensor.dtype == tf.resource for tensor in operation.inputs)
    if operation.op_def.is_stateful and not touches:
        private.run_independently(operation)


class StandIn:
    """What a graph computes with in the place of a tensor that it gets later.

    Args:
        shape: of the tensor, as far as it is known.
        dtype: of it.
    """

    def __init__(self, shape: Any, dtype: tf.DType) -> None:
        nothing = tf.zeros([each or 0 for each in shape], dtype)
        # Neither Python nor TensorFlow may compute with the zeros ahead of time.
        opaque = tf.raw_ops.PlaceholderWithDefault(input=nothing, shape=shape)
        self.tensor: tf.Tensor = tf.raw_ops.Identity(input=opaque)

    def become(self, tensor: tf.Tensor) -> None:
        """Let all that was computed with it be computed with a tensor of the same graph."""
        self.tensor.op._update_input(0, tensor)


def _called(operation: Any) -> Iterator[Any]:
    """The graphs of the functions that an operation calls."""
    for value in operation.node_def.attr.values():
        for function in [value.func, *value.list.func]:
            if function.name:
                yield operation.graph._get_function(function.name).graph
