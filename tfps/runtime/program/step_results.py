"""Computes the metric results among a step's outputs again, from totals of metric states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.functions.traced_graph import get_called_graph

# The calls from a step down to a tensor inside one of its functions.
Calls = tuple[Any, ...]
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
READ = "ReadVariableOp"


def describe_output(output: Any) -> Any:
    """Return the spec of a step's output, or the value of a text that all steps return alike."""
    if isinstance(output, tf.Tensor) and output.dtype == tf.string:
        text = tf.get_static_value(output)
        if text is not None:
            return np.asarray(text, object)
    return tf.type_spec_from_value(output) if tf.is_tensor(output) else output


class StepResults:
    """Outputs of a step as functions of the state of its metrics.

    A step returns `metric.result()` under any name, or something computed from it. Its metrics hold
    the examples of one batch on a worker and those of the epoch on the chief, so the chief computes
    such an output anew: the operations between a metric's variables and the output are copied from
    the step's graph.

    Args:
        outputs: the flat outputs of the step; other things than tensors are allowed.
        handles: handles of the step's own copies of metric state, in the order of ``specs``.
        specs: the specs of the metric state.

    Attributes:
        computable: the indices of outputs that can be computed anew.
        not_computable: the indices of outputs that use metrics in another way, as in a loop
            or with a batch.
    """

    def __init__(
        self, outputs: Sequence[Any], *, handles: Sequence[tf.Tensor], specs: Sequence[Any]
    ) -> None:
        self._outputs, self._specs = outputs, list(specs)
        self._handles = {handle.ref(): i for i, handle in enumerate(handles)}
        sources = {
            i: self._find_sources(o) for i, o in enumerate(outputs) if isinstance(o, tf.Tensor)
        }
        self.computable = [i for i, (metrics, others) in sources.items() if metrics and not others]
        self.not_computable = [i for i, (metrics, others) in sources.items() if metrics and others]

    def compute(self, states: Sequence[Any]) -> Mapping[int, Any]:
        """Compute the outputs that are results of metrics, by index, from states of all metrics."""
        if not self.computable:
            return {}
        results = self._compute_function(*states)
        return dict(zip(self.computable, results, strict=True))

    @cached_property
    def _compute_function(self) -> Any:
        def compute(*states: tf.Tensor) -> list[tf.Tensor]:
            copy = _GraphCopier({(handle, ()): states[i] for handle, i in self._handles.items()})
            return [copy.get_copy(self._outputs[i], ()) for i in self.computable]

        return tf.function(compute, autograph=False).get_concrete_function(*self._specs)

    def _find_sources(self, output: tf.Tensor) -> tuple[bool, bool]:
        """Return whether an output depends on metrics, and whether on other uncopyable values."""
        metrics = others = False
        known: set[Any] = set()
        waiting: list[tuple[tf.Tensor, Calls]] = [(output, ())]
        while waiting:
            tensor, calls = waiting.pop()
            if (tensor.ref(), calls) in known:
                continue
            known.add((tensor.ref(), calls))
            if tensor.ref() in self._handles:
                metrics = True
            elif (origin := _cross_call(tensor, calls)) is not None:
                waiting.append(origin)
            else:
                others = others or not _can_be_copied(tensor)
                waiting.extend((each, calls) for each in tensor.op.inputs)
        return metrics, others


class _GraphCopier:
    """Copies what tensors depend on into the current graph; states replace their handles."""

    def __init__(self, known: dict[Any, tf.Tensor]) -> None:
        self._known = known

    def get_copy(self, tensor: tf.Tensor, calls: Calls) -> tf.Tensor:
        """Return the copy of a tensor inside a chain of function calls."""
        key = (tensor.ref(), calls)
        if key not in self._known:
            if (origin := _cross_call(tensor, calls)) is not None:
                self._known[key] = self.get_copy(*origin)
            elif tensor.op.type == READ:
                self._known[key] = self.get_copy(tensor.op.inputs[0], calls)
            else:
                self._copy_operation(tensor.op, calls)
        return self._known[key]

    def _copy_operation(self, operation: tf.Operation, calls: Calls) -> None:
        copied = tf.compat.v1.get_default_graph().create_op(
            operation.type,
            [self.get_copy(each, calls) for each in operation.inputs],
            dtypes=[output.dtype for output in operation.outputs],
            attrs={name: operation.node_def.attr[name] for name in operation.node_def.attr},
            compute_device=False,
        )
        for before, after in zip(operation.outputs, copied.outputs, strict=True):
            self._known[before.ref(), calls] = after


def _can_be_copied(tensor: tf.Tensor) -> bool:
    """Return whether an operation can be copied to another graph with the same result."""
    operation = tensor.op
    if operation.type == READ:
        return True
    if operation.type == "Placeholder" or tensor.dtype == tf.resource:
        return False
    attributes = operation.node_def.attr.values()
    calls_functions = any(value.HasField("func") or value.list.func for value in attributes)
    return not (operation.op_def.is_stateful or calls_functions)


def _cross_call(tensor: tf.Tensor, calls: Calls) -> tuple[tf.Tensor, Calls] | None:
    """Return the same tensor on the other side of a function call, or None."""
    operation = tensor.op
    if operation.type in CALLS:
        inner = get_called_graph(operation)
        return inner.outputs[tensor.value_index], (*calls, operation)
    if operation.type == "Placeholder" and calls:
        inner = get_called_graph(calls[-1])
        for outer, argument in zip(calls[-1].inputs, inner.inputs, strict=True):
            if argument is tensor:
                return outer, calls[:-1]
    return None  # a step's own inputs are its batch
