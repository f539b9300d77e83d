"""Applies a scheduled function's changes of variables on the chief, once at its end."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_counts import register_counts
from tfps.bridge.closures.closure_numbers import get_running_closure
from tfps.transport.layout import Layout
from tfps.transport.packing import pack, unpack

# Functions end on different threads.
_counting = threading.Lock()


class FunctionCounts:
    """The changes that runs of a function make to variables on the chief, such as metrics.

    Each run writes them to a resource of its own there. The chief applies them when the function
    has ended well. The resource of a run whose worker has died, or which another run has replaced,
    is dropped.

    Args:
        variables: the Keras variables that the function assigns.
        chief: the chief's device.
        adds: returns whether a variable's change is added; else its new value is assigned.
    """

    def __init__(
        self, variables: Sequence[Any], *, chief: str, adds: Callable[[Any], bool]
    ) -> None:
        self._variables, self._chief = variables, chief
        self._adds = [adds(variable) for variable in variables]
        self._layout = Layout.from_entries(
            (str(index), v._value.dtype.name, tuple(v.shape)) for index, v in enumerate(variables)
        )

    def trace_end(self, now: Sequence[tf.Tensor], before: Sequence[tf.Tensor]) -> None:
        """Trace the end of a run, with the variables' values then and at its begin."""
        left = [a - b if adds else a for a, b, adds in zip(now, before, self._adds, strict=True)]
        payload = pack(self._layout, {str(index): value for index, value in enumerate(left)})
        graph: Any = private.current_graph()
        spec = tf.TensorSpec([], tf.resource)
        handle = graph.capture_call_time_value(self._create_at_call, spec, key="tfps_counts")
        tf.raw_ops.AssignVariableOp(resource=handle, value=payload)

    def _create_at_call(self) -> tf.Tensor:
        shape = tf.TensorShape([self._layout.size_bytes])
        with tf.device(self._chief):
            handle = private.create_variable_handle(
                shape=shape, dtype=tf.uint8, shared_name=private.ANONYMOUS_NAME
            )
        register_counts(get_running_closure(), functools.partial(self._apply, handle))
        return handle

    def _apply(self, handle: tf.Tensor) -> None:
        with _counting, tf.device(self._chief):
            self._assign(handle)

    @functools.cached_property
    def _assign(self) -> Any:
        @tf.function(autograph=False)
        def assign(handle: tf.Tensor) -> None:
            payload = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.uint8)
            left = unpack(self._layout, payload)
            for index, (variable, adds) in enumerate(zip(self._variables, self._adds, strict=True)):
                native = variable._value
                change = native.assign_add if adds else native.assign
                change(left[str(index)], read_value=False)

        return assign
