"""A worker's own variable that outlives the closure: the slots of an optimizer that runs there."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

ON_WORKER = "on_worker"


def kept_name(keras_variable: Any, role: str = ON_WORKER) -> str:
    """The name of what a worker keeps for a Keras variable.

    Args:
        keras_variable: that lives on a server.
        role: what is kept; of each role there is one.
    """
    return f"{keras_variable._value.shared_name}_{role}"


class KeptVariable(private.BaseResourceVariable):
    """A named resource on the worker in the place of a Keras variable that lives on a server.

    Every closure of the job finds it again. A worker process that is new has none: it is not
    initialised there.

    Args:
        keras_variable: the variable that it stands for; optimizers find it by the same key.
        container: of the job.
        role: what it keeps, see `kept_name`.
        shape: None: the variable's.
        dtype: None: the variable's.
    """

    def __init__(
        self,
        keras_variable: Any,
        *,
        container: str,
        role: str = ON_WORKER,
        shape: tuple[int, ...] | None = None,
        dtype: Any = None,
    ) -> None:
        shape = tf.TensorShape(tuple(keras_variable.shape) if shape is None else shape)
        dtype = keras_variable._dtype if dtype is None else dtype
        name = kept_name(keras_variable, role)
        with tf.control_dependencies(None):
            handle = private.variable_handle(
                shape=shape, dtype=tf.as_dtype(dtype), shared_name=name, container=container
            )
        super().__init__(
            trainable=False,
            shape=shape,
            dtype=tf.as_dtype(dtype),
            handle=handle,
            name=keras_variable.name,
            handle_name=keras_variable.name,
            unique_id=keras_variable._value._unique_id,
            in_graph_mode=False,
        )

    @property
    def is_kept(self) -> tf.Tensor:
        """Whether the worker has it, bool scalar."""
        known: tf.Tensor = tf.raw_ops.VarIsInitializedOp(resource=self.handle)
        return known

    def load(self, value: tf.Tensor) -> None:
        """Take over a value."""
        super().assign(value, read_value=False)

    def begin_with(self, value: tf.Tensor) -> None:
        """Take over a value on a worker that has none."""

        def load() -> tf.Tensor:
            self.load(value)
            return tf.constant(0)

        tf.cond(self.is_kept, lambda: tf.constant(0), load)
