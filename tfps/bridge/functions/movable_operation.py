"""Finds operations of a traced graph whose position in the graph does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.traced_graph import iter_called_graphs

# Reads of vocabularies; the next batch, which follows the previous one; handles of variables;
# checks, which raise an error or do nothing.
_MOVABLE = frozenset(
    {"LookupTableFindV2", "LookupTableSizeV2", "IteratorGetNext", "VarHandleOp", "Assert"}
)


def is_movable(operation: Any) -> bool:
    """Return whether an operation neither reads nor writes anything that a step changes.

    Movable are checks, look-ups in vocabularies, and batches of an iterator: other operations on
    the same resource keep their order with them.
    """
    if operation.type in _MOVABLE or not operation.op_def.is_stateful:
        return True
    graphs = list(iter_called_graphs(operation))
    return bool(graphs) and all(is_movable(each) for g in graphs for each in g.get_operations())


def iter_predecessors(operation: Any) -> Iterator[Any]:
    """Yield the operations that run before an operation, by data, control or shared resources."""
    yield from (tensor.op for tensor in operation.inputs)
    yield from operation.control_inputs
    for tensor in operation.inputs:
        if tensor.dtype == tf.resource:
            yield from (user for user in tensor.consumers() if user._id < operation._id)


def allow_early_run(operation: Any) -> None:
    """Let an operation run as soon as its inputs are available, regardless of its position.

    TensorFlow would run operations that have an effect but use no resource one after the other.
    """
    touches = any(tensor.dtype == tf.resource for tensor in operation.inputs)
    if operation.op_def.is_stateful and not touches:
        private.run_independently(operation)


class DeferredTensor:
    """A placeholder for a tensor of the graph that does not exist yet.

    Args:
        shape: the shape of the tensor, as far as it is known.
        dtype: the dtype of the tensor.
    """

    def __init__(self, shape: Any, dtype: tf.DType) -> None:
        nothing = tf.zeros([each or 0 for each in shape], dtype)
        # Neither Python nor TensorFlow may fold the zeros as a constant.
        opaque = tf.raw_ops.PlaceholderWithDefault(input=nothing, shape=shape)
        self.tensor: tf.Tensor = tf.raw_ops.Identity(input=opaque)

    def resolve(self, tensor: tf.Tensor) -> None:
        """Replace the placeholder by a tensor of the same graph in all operations that use it."""
        self.tensor.op._update_input(0, tensor)
