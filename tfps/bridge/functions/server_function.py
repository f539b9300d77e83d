"""Traces functions for parameter servers, which open each resource by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import outside_step
from tfps.bridge.variables.server_trace import tracing_server_function, use_mask


def trace_server_function(
    function: Callable[..., Sequence[tf.Tensor]],
    *,
    device: str,
    signature: list[tf.TensorSpec],
    handle_of_copy: Callable[[tf.Tensor, str], tf.Tensor] | None = None,
) -> tf.types.experimental.ConcreteFunction:
    """Trace a function for one server, and return the concrete function.

    Eager tensors that user code has made before become constants of the function.

    Args:
        function: the function to trace.
        device: the server.
        signature: the function's arguments.
        handle_of_copy: returns the handle that the function uses for the handle of a resource
            elsewhere, on a device; None: the function has no user code.

    Raises:
        RuntimeError: the function captured a tensor, which every request would have to send.
    """

    def run_on_server(*arguments: tf.Tensor) -> Sequence[tf.Tensor]:
        with (
            tracing_server_function(device),
            tf.device(device),
            _constants_for_captures(private.current_graph(), device, handle_of_copy),
        ):
            return function(*arguments)

    with outside_step(), private.placed_on(device):
        concrete = tf.function(
            run_on_server, input_signature=signature, autograph=False
        ).get_concrete_function()
    if concrete.captured_inputs:
        raise RuntimeError(
            f"function for {device}: received captured inputs {concrete.captured_inputs}, "
            "expected none; open every resource by its name in the function"
        )
    return concrete


@contextlib.contextmanager
def _constants_for_captures(
    graph: Any, device: str, handle_of_copy: Callable[[tf.Tensor, str], tf.Tensor] | None
) -> Iterator[None]:
    """Let a traced graph use constants and handles of its own for eager tensors.

    The graphs of branches, loops and functions inside pass on what they capture.
    """
    original_capture, constants = graph.capture, dict[int, tuple[tf.Tensor, tf.Tensor]]()

    def capture(tensor: tf.Tensor, name: str | None = None, shape: Any = None) -> tf.Tensor:
        if not isinstance(tensor, tf.__internal__.EagerTensor):
            return original_capture(tensor, name, shape)
        if id(tensor) not in constants:
            with graph.as_default(), tf.control_dependencies(None):
                if tensor.dtype not in (tf.resource, tf.variant):
                    own = tf.constant(tensor.numpy(), tensor.dtype)
                elif handle_of_copy is not None:
                    own = handle_of_copy(tensor, device)
                else:
                    return original_capture(tensor, name, shape)
            constants[id(tensor)] = (tensor, own)
        return constants[id(tensor)][1]

    graph.capture = capture
    try:
        yield
    finally:
        del graph.capture


@contextlib.contextmanager
def collect_stateful_operations() -> Iterator[list[tf.Operation]]:
    """Yield a list that contains, after the context, the stateful operations traced inside it.

    Handles of variables are not included: they are only names.
    """
    graph, stateful = private.current_graph(), list[tf.Operation]()
    before = len(graph.get_operations())
    yield stateful
    stateful += [
        operation
        for operation in graph.get_operations()[before:]
        if operation.op_def.is_stateful and operation.type != "VarHandleOp"
    ]


@contextlib.contextmanager
def mask_assignments(condition: tf.Tensor) -> Iterator[None]:
    """Trace assignments inside the context so that they write old values unless a condition holds.

    In compiled code it costs less to write an old value back than to run an update under a
    condition, which would be a separate kernel.

    Raises:
        RuntimeError: something was written other than by assignments of whole values.
    """
    with collect_stateful_operations() as operations, use_mask(condition):
        yield
    others = {operation.type for operation in operations} - {"ReadVariableOp", "AssignVariableOp"}
    if others:
        raise RuntimeError(
            f"received an update with {sorted(others)}, expected a masked update that only reads "
            "and assigns variables"
        )
