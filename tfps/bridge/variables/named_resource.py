"""A resource that a server finds by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private


def open_variable(container: str, shared_name: str) -> tf.Tensor:
    """Open a variable, to free it or to ask whether it is there."""
    return private.variable_handle(
        shape=tf.TensorShape([]),
        dtype=tf.float32,  # a variable is found by container and name alone
        shared_name=shared_name,
        container=container,
    )


def open_mutex(container: str, shared_name: str) -> tf.Tensor:
    """Open a mutex."""
    return tf.raw_ops.MutexV2(container=container, shared_name=shared_name)


class NamedResource(NamedTuple):
    """Where a resource lies, and how it is opened there.

    Args:
        container: of the resource.
        shared_name: unique in the container.
        device: where it lies.
        open_by_name: from container and name to a handle; what is no variable, it makes as well
            where there is none.
    """

    container: str
    shared_name: str
    device: str
    open_by_name: Callable[[str, str], tf.Tensor] = open_variable

    def handle(self) -> tf.Tensor:
        """A handle, in the graph that is traced or at once."""
        return self.open_by_name(self.container, self.shared_name)

    def write(self, value: tf.Tensor) -> Any:
        """Give a variable its value, which makes it where there is none; answers its handle."""
        with tf.init_scope(), private.placed_on(self.device):
            handle = private.variable_handle(
                shape=value.shape,
                dtype=value.dtype,
                shared_name=self.shared_name,
                container=self.container,
            )
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        return handle

    def destroy(self) -> None:
        """Free it; it need not be there any more."""
        with tf.init_scope(), private.placed_on(self.device):
            tf.raw_ops.DestroyResourceOp(resource=self.handle(), ignore_lookup_error=True)
