"""Some rows of a variable and of its slots, as an update target of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import keep_with_server_function
from tfps.optimizers.update_targets import UpdateTarget


def densified(gradient: Any) -> Any:
    """A gradient as a whole tensor: of rows, each once, zero where none came."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.scatter_nd(gradient.indices[:, None], gradient.values, gradient.dense_shape)


class GatheredRows:
    """Rows of a target on a server, brought together in variables of the function being traced.

    An optimizer that updates those does what it does to the whole variable, restricted to the rows.
    Nothing else of the variable or its slots is read or written.

    Args:
        whole: the update target; no slab.
        places: int64, of the rows in it, each once.
    """

    def __init__(self, whole: UpdateTarget, places: tf.Tensor) -> None:
        self._write_backs: list[Callable[[], None]] = []
        self._places = places
        self.target = whole._replace(
            variable=self._gathered(whole.variable),
            slots={
                name: None if slot is None else self._gathered(slot)
                for name, slot in whole.slots.items()
            },
        )

    def write_back(self) -> None:
        """Trace that the rows go back to where they came from."""
        for write in self._write_backs:
            write()

    def _gathered(self, variable: Any) -> Any:
        """A copy of a Keras variable whose value are the rows."""
        native = variable._value
        rows = private.anonymous_variable(shape=[None, *native.shape[1:]], dtype=native.dtype)
        keep_with_server_function(rows)  # which refers to it weakly
        rows.assign(_read(native, self._places), read_value=False)
        self._write_backs.append(lambda: _write(native, self._places, rows.read_value()))
        copy = object.__new__(type(variable))
        copy.__dict__.update(variable.__dict__)
        copy._value, copy._shape = rows, tuple(rows.shape)
        return copy


def _read(native: Any, places: tf.Tensor) -> tf.Tensor:
    resource, indices = _within(native, places)
    found = tf.raw_ops.ResourceGather(resource=resource, indices=indices, dtype=native.dtype)
    return tf.reshape(found, [-1, *native.shape[1:]])


def _write(native: Any, places: tf.Tensor, rows: tf.Tensor) -> None:
    resource, indices = _within(native, places)
    if native.slab is not None:
        rows = tf.reshape(rows, [-1])
    tf.raw_ops.ResourceScatterUpdate(resource=resource, indices=indices, updates=rows)
    if native.slab is not None:
        # What others read of the slab would copy all of it from now on, until this is said.
        tf.raw_ops.DisableCopyOnRead(resource=resource)


def _within(native: Any, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What holds a variable, and where the rows lie in that: items of a slab, or rows."""
    if native.slab is None:
        return native.handle, places
    row_items = native.shape[1:].num_elements()
    begins = native.member.offset_items + places * row_items
    items = begins[:, None] + tf.range(row_items, dtype=tf.int64)
    return native.slab.handle, tf.reshape(items, [-1])
