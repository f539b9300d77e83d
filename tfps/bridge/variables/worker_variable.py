"""Defines a worker's copy of a server variable, which exists during one closure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.linear_part import Factor, find_kept_factor


class WorkerVariable(private.BaseResourceVariable):
    """A resource on the worker that replaces a Keras variable while a step is traced.

    It is a real resource variable, so `GradientTape`, nested tf.functions and assignments inside
    `tf.cond` work as they do on one machine. Every run of the closure creates its own resource: a
    cancelled closure that still runs cannot disturb its successor.

    Args:
        keras_variable: the variable that it replaces; optimizers find it by the same key.
    """

    def __init__(self, keras_variable: Any) -> None:
        shape, dtype = tf.TensorShape(tuple(keras_variable.shape)), keras_variable._dtype
        with tf.control_dependencies(None):
            handle = private.create_variable_handle(
                shape=shape, dtype=tf.as_dtype(dtype), shared_name=private.ANONYMOUS_NAME
            )
        self.is_assigned = False
        # Called with the result of `find_kept_factor` for each traced assignment.
        self.on_assignment: Callable[[Factor | None], None] | None = None
        self.is_read = False  # whether it is read as a whole, not only some of its rows
        super().__init__(
            trainable=keras_variable.trainable,
            shape=shape,
            dtype=tf.as_dtype(dtype),
            handle=handle,
            name=keras_variable.name,
            handle_name=keras_variable.name,
            unique_id=keras_variable._value._unique_id,
            in_graph_mode=False,
        )

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        self.is_read = True
        return super()._read_variable_op(no_copy)

    def load(self, value: tf.Tensor) -> None:
        """Assign the value from the server, without counting it as an assignment of the step."""
        super().assign(value, read_value=False)

    def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        self._record_assignment(value)
        return super().assign(value, *args, **kwargs)

    def assign_add(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        self._record_assignment(delta, adds=1)
        return super().assign_add(delta, *args, **kwargs)

    def assign_sub(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        self._record_assignment(delta, adds=-1)
        return super().assign_sub(delta, *args, **kwargs)

    def _record_assignment(self, value: Any, *, adds: int = 0) -> None:
        self.is_assigned = True
        if self.on_assignment is not None:
            kept = find_kept_factor(value, self)
            self.on_assignment(kept if kept is None or not adds else 1.0 + adds * kept)
