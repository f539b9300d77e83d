"""Applies a scheduled function's changes of variables on the chief, once at its end."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_counts import register_counts
from tfps.bridge.closures.closure_numbers import get_running_closure
from tfps.transport.layout import Layout
from tfps.transport.packing import pack, unpack

KEY = "tfps_counts"  # of the call-time capture, and of the object that is kept with the graph
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
        self.variables, self._chief = variables, chief
        self._adds = [adds(variable) for variable in variables]
        self.layout = Layout.from_entries(
            (str(index), v._value.dtype.name, tuple(v.shape)) for index, v in enumerate(variables)
        )

    def trace_end(self, now: Sequence[tf.Tensor], before: Sequence[tf.Tensor]) -> None:
        """Trace the end of a run, with the variables' values then and at its begin."""
        left = [a - b if adds else a for a, b, adds in zip(now, before, self._adds, strict=True)]
        payload = pack(self.layout, {str(index): value for index, value in enumerate(left)})
        graph: Any = private.current_graph()
        spec = tf.TensorSpec([], tf.resource)
        handle = graph.capture_call_time_value(self._create_at_call, spec, key=KEY)
        private.keep_with_graph(self, KEY)
        tf.raw_ops.AssignVariableOp(resource=handle, value=payload)

    def _create_at_call(self) -> tf.Tensor:
        shape = tf.TensorShape([self.layout.size_bytes])
        with tf.device(self._chief):
            handle = private.create_variable_handle(
                shape=shape, dtype=tf.uint8, shared_name=private.ANONYMOUS_NAME
            )
        register_counts(get_running_closure(), functools.partial(self._apply, handle))
        return handle

    def _apply(self, handle: tf.Tensor) -> None:
        with tf.device(self._chief):
            payload = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.uint8)
            self.apply_all(payload[tf.newaxis])

    def apply_all(self, payloads: np.ndarray[Any, Any] | tf.Tensor) -> None:
        """Apply the changes of several runs, one after the other; uint8 [runs, bytes]."""
        with _counting, tf.device(self._chief):
            self._assign(payloads)

    def change(self, natives: Sequence[Any], payload: tf.Tensor) -> None:
        """Change variables, in the order of the Keras variables, as a run does."""
        left = unpack(self.layout, payload)
        for index, (native, adds) in enumerate(zip(natives, self._adds, strict=True)):
            change = native.assign_add if adds else native.assign
            change(left[str(index)], read_value=False)

    @functools.cached_property
    def _assign(self) -> Any:
        natives = [variable._value for variable in self.variables]

        @tf.function(autograph=False, reduce_retracing=True)  # the number of runs varies
        def assign(payloads: tf.Tensor) -> None:
            def change(run: tf.Tensor) -> tf.Tensor:
                self.change(natives, payloads[run])
                return run + 1

            runs = tf.shape(payloads)[0]
            tf.while_loop(lambda run: run < runs, change, [0], parallel_iterations=1)

        return assign
