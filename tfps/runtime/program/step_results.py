"""Which outputs of a step are results of metrics, and what they are for other states of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

# The calls on the way from a step to a tensor inside one of its functions.
Calls = tuple[Any, ...]
CALLS = ("PartitionedCall", "StatefulPartitionedCall")


class _NotAResult(Exception):
    """A tensor depends on more than metrics."""


class StepResults:
    """Outputs of a step as functions of the state of its metrics.

    A step returns `metric.result()` under any name, or something computed from it. Its metrics
    hold the examples of one batch on a worker and those of the epoch on the chief, so the chief
    computes such an output anew: the operations between a metric's variables and the output are
    copied from the step's graph.

    Args:
        outputs: of the step, flat; other things than tensors are allowed.
        handles: of the step's own copies of metric state, in the order of ``specs``.
        specs: of the metric state.

    Attributes:
        positions: of the outputs that can be computed anew.
        others: of outputs that use metrics in a way that cannot, such as in a loop or with a batch.
    """

    def __init__(
        self, outputs: Sequence[Any], *, handles: Sequence[tf.Tensor], specs: Sequence[Any]
    ) -> None:
        self._outputs = outputs
        self._handles = {handle.ref(): i for i, handle in enumerate(handles)}
        self.positions = [i for i, output in enumerate(outputs) if self._is_result(output)]
        self.others = [
            i
            for i, output in enumerate(outputs)
            if i not in self.positions
            and isinstance(output, tf.Tensor)
            and self._uses_metrics(output)
        ]
        self._specs = list(specs)
        self._compute: Any = None

    def compute(self, states: Sequence[Any]) -> Mapping[int, Any]:
        """The outputs that are results of metrics, by position, for a state of all metrics."""
        if not self.positions:
            return {}
        if self._compute is None:
            copy = tf.function(self._copy, autograph=False)
            self._compute = copy.get_concrete_function(*self._specs)
        results = self._compute(*states)
        return {i: result.numpy() for i, result in zip(self.positions, results, strict=True)}

    def _is_result(self, output: Any) -> bool:
        if not isinstance(output, tf.Tensor):
            return False
        with tf.Graph().as_default():
            copy = _Copy(self._handles, states=None)
            try:
                copy.of(output, ())
            except _NotAResult:
                return False
        return copy.reads_metrics

    def _uses_metrics(self, output: tf.Tensor) -> bool:
        found: set[Any] = set()
        waiting: list[tuple[tf.Tensor, Calls]] = [(output, ())]
        while waiting:
            tensor, calls = waiting.pop()
            if (tensor.ref(), calls) in found:
                continue
            found.add((tensor.ref(), calls))
            operation = tensor.op
            if operation.type == "Placeholder" and calls:
                waiting.append(_outside(tensor, calls))
            elif operation.type in CALLS:
                inner = private.graph_of_call(operation)
                waiting.append((inner.outputs[tensor.value_index], (*calls, operation)))
            else:
                waiting.extend((each, calls) for each in operation.inputs)
        return any(key in self._handles for key, _ in found)

    def _copy(self, *states: tf.Tensor) -> list[tf.Tensor]:
        copy = _Copy(self._handles, states=states)
        return [copy.of(self._outputs[i], ()) for i in self.positions]


class _Copy:
    """Copies what a tensor depends on into the current graph.

    Args:
        handles: positions of metric state, by the key of its handle.
        states: the values in their place; None: placeholders.
    """

    def __init__(self, handles: Mapping[Any, int], *, states: Sequence[tf.Tensor] | None) -> None:
        self._handles, self._states = handles, states
        self._known: dict[Any, tf.Tensor] = {}
        self.reads_metrics = False

    def of(self, tensor: tf.Tensor, calls: Calls) -> tf.Tensor:
        """The copy of a tensor that lies inside a chain of calls."""
        key = (tensor.ref(), calls)
        if key not in self._known:
            self._known[key] = self._made(tensor, calls)
        return self._known[key]

    def _made(self, tensor: tf.Tensor, calls: Calls) -> tf.Tensor:
        operation = tensor.op
        kind = operation.type
        if kind == "ReadVariableOp":
            return self._state(operation.inputs[0], calls, tensor)
        if kind == "Placeholder":
            return self.of(*_outside(tensor, calls))
        if kind in CALLS:
            inner = private.graph_of_call(operation)
            return self.of(inner.outputs[tensor.value_index], (*calls, operation))
        if operation.op_def.is_stateful or _calls_functions(operation):
            raise _NotAResult
        inputs = [self.of(each, calls) for each in operation.inputs]
        made = tf.compat.v1.get_default_graph().create_op(
            kind,
            inputs,
            dtypes=[output.dtype for output in operation.outputs],
            attrs={name: operation.node_def.attr[name] for name in operation.node_def.attr},
            compute_device=False,
        )
        for before, after in zip(operation.outputs, made.outputs, strict=True):
            self._known[before.ref(), calls] = after
        return made.outputs[tensor.value_index]

    def _state(self, handle: tf.Tensor, calls: Calls, read: tf.Tensor) -> tf.Tensor:
        while handle.ref() not in self._handles and handle.op.type == "Placeholder":
            handle, calls = _outside(handle, calls)
        position = self._handles.get(handle.ref())
        if position is None:
            raise _NotAResult
        self.reads_metrics = True
        if self._states is None:
            return tf.compat.v1.placeholder(read.dtype, read.shape)
        return self._states[position]


def _calls_functions(operation: tf.Operation) -> bool:
    return any(
        value.HasField("func") or value.list.func for value in operation.node_def.attr.values()
    )


def _outside(tensor: tf.Tensor, calls: Calls) -> tuple[tf.Tensor, Calls]:
    """What a call passes for an input of its function; a step's own inputs are its batch."""
    if not calls:
        raise _NotAResult
    inner = private.graph_of_call(calls[-1])
    for outer, argument in zip(calls[-1].inputs, inner.inputs, strict=True):
        if argument is tensor:
            return outer, calls[:-1]
    raise _NotAResult
