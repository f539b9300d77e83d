"""Opens resources on servers by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private


def open_variable(container: str, shared_name: str) -> tf.Tensor:
    """Return the handle of a variable, to free it or to check whether it exists."""
    return private.create_variable_handle(
        shape=tf.TensorShape([]),
        dtype=tf.float32,  # a variable is found by container and name alone
        shared_name=shared_name,
        container=container,
    )


def open_mutex(container: str, shared_name: str) -> tf.Tensor:
    """Return the handle of a mutex."""
    return tf.raw_ops.MutexV2(container=container, shared_name=shared_name)


class NamedResource(NamedTuple):
    """The address of a resource on a server, and the function that opens it.

    Args:
        container: the container of the resource.
        shared_name: the name, unique in the container.
        device: the device of the resource.
        open_by_name: returns the handle for a container and a name. It creates the resource if that
            does not exist, unless it is a variable.
    """

    container: str
    shared_name: str
    device: str
    open_by_name: Callable[[str, str], tf.Tensor] = open_variable

    def handle(self) -> tf.Tensor:
        """Return a handle, in the graph that is being traced or eagerly."""
        return self.open_by_name(self.container, self.shared_name)

    def write(self, value: tf.Tensor) -> Any:
        """Assign a variable, which creates it if it does not exist, and return its handle."""
        with tf.init_scope(), private.placed_on(self.device):
            handle = private.create_variable_handle(
                shape=value.shape,
                dtype=value.dtype,
                shared_name=self.shared_name,
                container=self.container,
            )
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        return handle

    def destroy(self) -> None:
        """Free the resource, if it still exists."""
        with tf.init_scope(), private.placed_on(self.device):
            tf.raw_ops.DestroyResourceOp(resource=self.handle(), ignore_lookup_error=True)
