"""A variable that is a piece of a slab: one flat vector of a server that many variables share."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import ServerVariable, in_server_function
from tfps.errors import UnsupportedError
from tfps.placement.slab import Member, SlabLayout


def piece_of(vector: tf.Tensor, member: Member) -> tf.Tensor:
    """One variable's items of a slab, or of its gradient."""
    begin = tf.constant([member.offset_items], tf.int64)  # a slab may have more than 2**31 items
    return tf.slice(vector, begin, tf.constant([member.items], tf.int64))


class SlabVariable(ServerVariable):
    """A flat vector on a server, in which variables lie end to end.

    Args:
        initial_value: the vector, or a callable that returns it.
        layout: which variable lies where.
        options: of `ServerVariable`.
    """

    def __init__(self, initial_value: Any, *, layout: SlabLayout, **options: Any) -> None:
        super().__init__(initial_value, trainable=False, **options)
        self.layout = layout
        # Weak, because the variables hold their slab.
        self.owners: tuple[weakref.ref[Any], ...] = ()

    def as_keras_variable(self) -> Any:
        """A Keras variable whose value is the whole vector, for an optimizer to update."""
        with tf.variable_creator_scope(lambda *_, **__: self):
            return keras.Variable(
                tf.zeros,
                shape=tuple(self.shape),
                dtype=self.dtype.name,
                name=self.shared_name.replace("/", "_"),
            )


class ViewVariable(ServerVariable):
    """A piece of a slab that is read, assigned, saved and differentiated like any variable.

    Its handle only tells it from others: gradient tapes find it by that. Every operation goes to
    the slab, and a write changes this variable's part of it alone.

    Args:
        slab: what holds the value.
        member: the place in it.
        replaces: the variable whose name, key and properties the view takes over.
    """

    def __init__(self, slab: SlabVariable, *, member: Member, replaces: ServerVariable) -> None:
        shape = tf.TensorShape(member.shape)
        with tf.init_scope(), private.placed_on("/device:CPU:0"):
            handle = private.variable_handle(
                shape=shape, dtype=slab.dtype, shared_name=private.ANONYMOUS_NAME
            )
        self.slab, self.member = slab, member
        self._tfps_container = slab.resource.container
        self._tfps_device = slab.device
        self._tfps_devices = [slab.device]
        self._tfps_on_access = None  # the slab's acts
        private.BaseResourceVariable.__init__(
            self,
            trainable=replaces.trainable,
            shape=shape,
            dtype=slab.dtype,
            handle=handle,
            name=replaces.name,
            handle_name=replaces.name.removesuffix(":0"),
            unique_id=replaces.shared_name,
            synchronization=replaces.synchronization,
            aggregation=replaces.aggregation,
            distribute_strategy=replaces._distribute_strategy,
            in_graph_mode=False,
        )

    @property
    def handle(self) -> tf.Tensor:
        return self._handle

    def is_initialized(self, name: Any = None) -> tf.Tensor:
        return self.slab.is_initialized(name)

    def _piece(self, no_copy: bool = False) -> tf.Tensor:
        with private.placed_on(self.device):
            piece = self.slab._read_variable_op(no_copy)
            if self.member.items != self.slab.layout.items:
                piece = piece_of(piece, self.member)
            return tf.reshape(piece, self.shape)

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        if in_server_function():  # nobody differentiates there, and the handle is not known there
            return self._piece(no_copy)
        if private.tracing_for_a_saved_model():  # there it is a variable of its own
            return super()._read_variable_op(no_copy)
        return private.differentiable_piece(self, lambda: self._piece(no_copy))

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
        value = tf.convert_to_tensor(value, dtype=self.dtype)
        if not self.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"cannot assign to variable {self.name}: received a value of shape {value.shape}, "
                f"expected {self.shape}"
            )
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
        return self._written(handle, read_value)

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
        if in_server_function():  # under the server's mutex: nobody comes between
            is_sum = operation is tf.raw_ops.ResourceScatterAdd
            new = self._piece() + delta if is_sum else self._piece() - delta
            return self.assign(new, read_value=read_value)
        delta = tf.broadcast_to(delta, self.shape)
        begin = self.member.offset_items
        with private.placed_on(self.device):
            handle = self.slab.handle
            # One operation, so that two at once lose nothing, as with a variable of its own.
            operation(
                resource=handle,
                indices=tf.range(begin, begin + self.member.items, dtype=tf.int64),
                updates=tf.reshape(delta, [self.member.items]),
            )
        return self._written(handle, read_value)

    def _written(self, handle: tf.Tensor, read_value: bool) -> Any:
        """End a write; answers what assignments of TensorFlow's variables answer."""
        with private.placed_on(self.device):
            # A write to a part makes every later read copy the whole vector, until this is said.
            done = tf.raw_ops.DisableCopyOnRead(resource=handle)
        return self if read_value else done

    def _strided_slice_assign(
        self, begin: Any, end: Any, strides: Any, value: Any, name: Any, **masks: Any
    ) -> Any:
        changed = tf.raw_ops.TensorStridedSliceUpdate(
            input=self._piece(),
            begin=begin,
            end=end,
            strides=strides,
            value=tf.convert_to_tensor(value, dtype=self.dtype),
            **masks,
        )
        return self.assign(changed)

    def _scatter(self, change: Callable[..., tf.Tensor], delta: tf.IndexedSlices) -> Any:
        indices = tf.convert_to_tensor(delta.indices)[..., None]
        values = tf.convert_to_tensor(delta.values, dtype=self.dtype)
        return self.assign(change(self._piece(), indices, values))

    def scatter_add(self, sparse_delta: Any, use_locking: Any = False, name: Any = None) -> Any:
        return self._scatter(tf.tensor_scatter_nd_add, sparse_delta)

    def scatter_sub(self, sparse_delta: Any, use_locking: Any = False, name: Any = None) -> Any:
        return self._scatter(tf.tensor_scatter_nd_sub, sparse_delta)

    def scatter_update(self, sparse_delta: Any, use_locking: Any = False, name: Any = None) -> Any:
        return self._scatter(tf.tensor_scatter_nd_update, sparse_delta)

    def scatter_max(self, sparse_delta: Any, use_locking: Any = False, name: Any = None) -> Any:
        return self._scatter(tf.tensor_scatter_nd_max, sparse_delta)

    def scatter_min(self, sparse_delta: Any, use_locking: Any = False, name: Any = None) -> Any:
        return self._scatter(tf.tensor_scatter_nd_min, sparse_delta)

    def scatter_nd_add(self, indices: Any, updates: Any, name: Any = None) -> Any:
        return self.assign(tf.tensor_scatter_nd_add(self._piece(), indices, updates))

    def scatter_nd_sub(self, indices: Any, updates: Any, name: Any = None) -> Any:
        return self.assign(tf.tensor_scatter_nd_sub(self._piece(), indices, updates))

    def scatter_nd_update(self, indices: Any, updates: Any, name: Any = None) -> Any:
        return self.assign(tf.tensor_scatter_nd_update(self._piece(), indices, updates))

    def _unsupported(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"variable {self.name} shares a vector with others on {self.device}; use assign(), "
            "assign_add(), assign_sub(), scatter_add(), scatter_sub(), scatter_update(), "
            "scatter_max() or scatter_min() to change it"
        )

    scatter_mul = scatter_div = batch_scatter_update = count_up_to = _unsupported
    scatter_nd_max = scatter_nd_min = _unsupported

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self.assign(restored_tensors["VARIABLE_VALUE"], read_value=False)

    def destroy(self) -> None:
        """Nothing to free: the slab goes when the last of its variables has left it."""
