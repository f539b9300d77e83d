"""Defines variables on a worker that outlive closures, such as slots of local optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private


def make_worker_local_name(keras_variable: Any) -> str:
    """Return the name of a worker's own variable for a Keras variable on a server."""
    return f"{keras_variable._value.shared_name}_on_worker"


class WorkerLocalTensor(private.BaseResourceVariable):
    """A variable that is stored on the worker under a name.

    Every closure of the job finds it again. In a new worker process it is uninitialized.

    Args:
        shared_name: the name, unique in the container.
        container: the container of the job.
        shape: the shape of the value.
        dtype: the dtype of the value.
        name: the displayed name; None for the shared name.
        unique_id: the key by which optimizers find it; None for the shared name.
    """

    def __init__(
        self,
        shared_name: str,
        *,
        container: str,
        shape: Sequence[int],
        dtype: Any,
        name: str | None = None,
        unique_id: str | None = None,
    ) -> None:
        shape, dtype = tf.TensorShape(shape), tf.as_dtype(dtype)
        with tf.control_dependencies(None):
            handle = private.create_variable_handle(
                shape=shape, dtype=dtype, shared_name=shared_name, container=container
            )
        super().__init__(
            trainable=False,
            shape=shape,
            dtype=dtype,
            handle=handle,
            name=name or shared_name,
            handle_name=name or shared_name,
            unique_id=unique_id or shared_name,
            in_graph_mode=False,
        )

    @property
    def has_value(self) -> tf.Tensor:
        """Whether the worker has a value of the variable, a bool scalar."""
        return tf.raw_ops.VarIsInitializedOp(resource=self.handle)

    def load(self, value: tf.Tensor) -> tf.Operation:
        """Assign a value, and return the operation."""
        return super().assign(value, read_value=False)

    def load_if_missing(self, value: tf.Tensor) -> None:
        """Assign a value if the worker has none."""

        def load() -> tf.Tensor:
            self.load(value)
            return tf.constant(0)

        tf.cond(self.has_value, lambda: tf.constant(0), load)


class WorkerLocalVariable(WorkerLocalTensor):
    """A worker's variable that local optimizers use instead of a Keras variable on a server.

    Args:
        keras_variable: the variable that it replaces; optimizers find it by the same key.
        container: the container of the job.
        shape: the shape; None for the Keras variable's.
        dtype: the dtype; None for the Keras variable's.
    """

    def __init__(
        self,
        keras_variable: Any,
        *,
        container: str,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            make_worker_local_name(keras_variable),
            container=container,
            shape=tuple(keras_variable.shape) if shape is None else shape,
            dtype=keras_variable._dtype if dtype is None else dtype,
            name=keras_variable.name,
            unique_id=keras_variable._value._unique_id,
        )
