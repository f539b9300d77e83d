"""A variable that is a segment of a slab: a flat vector on a server that many variables share."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.composed_variable import ComposedVariable
from tfps.bridge.variables.server_access import get_watch
from tfps.bridge.variables.server_trace import in_server_function
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.placement.slab import Member, SlabLayout


def get_segment(vector: tf.Tensor, member: Member) -> tf.Tensor:
    """Return the items of one variable from a slab or from the slab's gradient."""
    begin = tf.constant([member.offset_items], tf.int64)  # a slab may have more than 2**31 items
    return tf.slice(vector, begin, tf.constant([member.items], tf.int64))


class SlabVariable(ServerVariable):
    """A flat vector on a server that stores several variables one after the other.

    Args:
        initial_value: the vector, or a callable that returns it.
        layout: the positions of the variables.
        options: further arguments of `ServerVariable`.
    """

    def __init__(self, initial_value: Any, *, layout: SlabLayout, **options: Any) -> None:
        super().__init__(initial_value, trainable=False, **options)
        self.layout = layout
        # Weak, because the variables refer to their slab.
        self.owners: tuple[weakref.ref[Any], ...] = ()


class ViewVariable(ComposedVariable):
    """A segment of a slab that is read, assigned, saved and differentiated like any variable.

    Every operation is forwarded to the slab, and a write changes only this variable's segment.

    Args:
        slab: the slab with the value.
        member: the segment.
        replaces: the variable whose name, key and properties the view takes over.
    """

    def __init__(self, slab: SlabVariable, *, member: Member, replaces: ServerVariable) -> None:
        self.slab, self.member = slab, member
        self._tfps_container = slab.container
        self._tfps_device = slab.device
        self._tfps_devices = [slab.device]
        super().__init__(
            shape=tf.TensorShape(member.shape),
            dtype=slab.dtype,
            unique_id=replaces.shared_name,
            trainable=replaces.trainable,
            name=replaces.name,
            handle_name=replaces.name.removesuffix(":0"),
            synchronization=replaces.synchronization,
            aggregation=replaces.aggregation,
            distribute_strategy=replaces._distribute_strategy,
        )

    def is_initialized(self, name: Any = None) -> tf.Tensor:
        return self.slab.is_initialized(name)

    def read_composed(self, no_copy: bool = False) -> tf.Tensor:
        with private.placed_on(self.device):
            value = self.slab._read_variable_op(no_copy)
            if self.member.items != self.slab.layout.items:
                value = get_segment(value, self.member)
            return tf.reshape(value, self.shape)

    @property
    def _place_description(self) -> str:
        return f"shares a slab with others on {self.device}"

    def sparse_read(self, indices: Any, name: Any = None) -> tf.Tensor:
        value = self._read_variable_op()
        with private.placed_on(self.device):
            rows = tf.gather(tf.convert_to_tensor(value), indices, name=name)
        return tf.identity(rows)

    def gather_nd(self, indices: Any, name: Any = None) -> tf.Tensor:
        value = self._read_variable_op()
        with private.placed_on(self.device):
            items = tf.gather_nd(tf.convert_to_tensor(value), indices, name=name)
        return tf.identity(items)

    def assign(
        self, value: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        value = self._convert_checked(value)
        begin = self.member.offset_items
        with private.placed_on(self.device):
            handle = self.slab.handle
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=handle,
                begin=tf.constant([begin], tf.int64),
                end=tf.constant([begin + self.member.items], tf.int64),
                strides=tf.constant([1], tf.int64),
                value=tf.reshape(value, [self.member.items]),
                name=name,
            )
        return self._finish_write(handle, read_value)

    def assign_add(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        return self._accumulate(tf.raw_ops.ResourceScatterAdd, delta, read_value)

    def assign_sub(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        return self._accumulate(tf.raw_ops.ResourceScatterSub, delta, read_value)

    def _accumulate(self, operation: Callable[..., Any], delta: Any, read_value: bool) -> Any:
        delta = tf.convert_to_tensor(delta, dtype=self.dtype)
        # A server function holds the mutex, so this is safe; a repeated access must not add twice.
        if in_server_function() or get_watch(self.container) is not None:
            is_sum = operation is tf.raw_ops.ResourceScatterAdd
            new = self.read_composed() + delta if is_sum else self.read_composed() - delta
            return self.assign(new, read_value=read_value)
        delta = tf.broadcast_to(delta, self.shape)
        begin = self.member.offset_items
        with private.placed_on(self.device):
            handle = self.slab.handle
            # One operation, so that of two at once none is lost, as with a separate variable.
            operation(
                resource=handle,
                indices=tf.range(begin, begin + self.member.items, dtype=tf.int64),
                updates=tf.reshape(delta, [self.member.items]),
            )
        return self._finish_write(handle, read_value)

    def _finish_write(self, handle: tf.Tensor, read_value: bool) -> Any:
        """Finish a write; return this variable or the operation, as `tf.Variable.assign` does."""
        self.slab.count_write()
        with private.placed_on(self.device):
            # A write to a part makes every later read copy the whole vector, unless this is called.
            done = tf.raw_ops.DisableCopyOnRead(resource=handle)
        return self if read_value else done
