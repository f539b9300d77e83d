"""A worker's own variable that outlives the closure: the slots of an optimizer that runs there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private


def worker_local_name(keras_variable: Any) -> str:
    """The name of what a worker keeps for a Keras variable that lives on a server."""
    return f"{keras_variable._value.shared_name}_on_worker"


class WorkerLocalTensor(private.BaseResourceVariable):
    """A named resource on the worker.

    Every closure of the job finds it again. A worker process that is new has none: it is not
    initialised there.

    Args:
        shared_name: unique in the container.
        container: of the job.
        shape: of the value.
        dtype: of the value.
        name: that is shown; None: the shared name.
        unique_id: by which optimizers find it; None: the shared name.
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
            handle = private.variable_handle(
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
    def is_kept(self) -> tf.Tensor:
        """Whether the worker has it, bool scalar."""
        return tf.raw_ops.VarIsInitializedOp(resource=self.handle)

    def load(self, value: tf.Tensor) -> tf.Operation:
        """Take over a value; answers what does it."""
        return super().assign(value, read_value=False)

    def begin_with(self, value: tf.Tensor) -> None:
        """Take over a value on a worker that has none."""

        def load() -> tf.Tensor:
            self.load(value)
            return tf.constant(0)

        tf.cond(self.is_kept, lambda: tf.constant(0), load)


class WorkerLocalVariable(WorkerLocalTensor):
    """One in the place of a Keras variable that lives on a server.

    Args:
        keras_variable: the variable that it stands for; optimizers find it by the same key.
        container: of the job.
        shape: None: the variable's.
        dtype: None: the variable's.
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
            worker_local_name(keras_variable),
            container=container,
            shape=tuple(keras_variable.shape) if shape is None else shape,
            dtype=keras_variable._dtype if dtype is None else dtype,
            name=keras_variable.name,
            unique_id=keras_variable._value._unique_id,
        )
