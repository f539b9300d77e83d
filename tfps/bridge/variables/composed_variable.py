"""Defines variables whose values are stored in other variables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.server_trace import in_server_function
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.errors import UnsupportedError


class ComposedVariable(ServerVariable):
    """A variable without a value of its own that can be read, assigned, saved and differentiated.

    Its handle has no value; gradient tapes use it to identify the variable.

    Args:
        shape: the shape of the value, fully known.
        dtype: the dtype of the value.
        unique_id: the key by which programs and optimizers find the variable.
        options: further arguments of a variable.
    """

    def __init__(
        self, *, shape: tf.TensorShape, dtype: tf.DType, unique_id: str, **options: Any
    ) -> None:
        with tf.init_scope(), private.placed_on("/device:CPU:0"):
            handle = private.create_variable_handle(
                shape=shape, dtype=dtype, shared_name=private.ANONYMOUS_NAME
            )
        self._tfps_on_access = None  # the variables with the value have theirs
        private.BaseResourceVariable.__init__(
            self,
            shape=shape,
            dtype=dtype,
            handle=handle,
            unique_id=unique_id,
            in_graph_mode=False,
            **options,
        )

    def read_composed(self, no_copy: bool = False) -> tf.Tensor:
        """Return the value, from the variables that store it."""
        raise NotImplementedError

    @property
    def handle(self) -> tf.Tensor:
        return self._handle

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        if in_server_function():  # there are no gradients there, and the handle is unknown there
            return self.read_composed(no_copy)
        if private.is_tracing_saved_model():  # a SavedModel has it as a variable of its own
            return super()._read_variable_op(no_copy)
        return private.read_differentiably(self, lambda: self.read_composed(no_copy))

    def _convert_checked(self, value: Any) -> tf.Tensor:
        """Convert a value to a tensor, and check that its shape fits the variable."""
        value = tf.convert_to_tensor(value, dtype=self.dtype)
        if not self.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"{self.name}: received a value of shape {value.shape}, expected {self.shape}"
            )
        return value

    def _strided_slice_assign(
        self, begin: Any, end: Any, strides: Any, value: Any, name: Any, **masks: Any
    ) -> Any:
        changed = tf.raw_ops.TensorStridedSliceUpdate(
            input=self.read_composed(),
            begin=begin,
            end=end,
            strides=strides,
            value=tf.convert_to_tensor(value, dtype=self.dtype),
            **masks,
        )
        return self.assign(changed)

    def _scatter(
        self,
        change: Callable[..., Any],
        sparse_delta: Any,
        use_locking: Any = False,
        name: Any = None,
    ) -> Any:
        indices = tf.convert_to_tensor(sparse_delta.indices)[..., None]
        values = tf.convert_to_tensor(sparse_delta.values, dtype=self.dtype)
        return self._scatter_nd(change, indices, values)

    scatter_add = partialmethod(_scatter, tf.tensor_scatter_nd_add)
    scatter_sub = partialmethod(_scatter, tf.tensor_scatter_nd_sub)
    scatter_update = partialmethod(_scatter, tf.tensor_scatter_nd_update)
    scatter_max = partialmethod(_scatter, tf.tensor_scatter_nd_max)
    scatter_min = partialmethod(_scatter, tf.tensor_scatter_nd_min)

    def _scatter_nd(
        self, change: Callable[..., Any], indices: Any, updates: Any, name: Any = None
    ) -> Any:
        return self.assign(change(self.read_composed(), indices, updates))

    scatter_nd_add = partialmethod(_scatter_nd, tf.tensor_scatter_nd_add)
    scatter_nd_sub = partialmethod(_scatter_nd, tf.tensor_scatter_nd_sub)
    scatter_nd_update = partialmethod(_scatter_nd, tf.tensor_scatter_nd_update)

    @property
    def _place_description(self) -> str:
        """A description of where the value is stored, for error messages."""
        raise NotImplementedError

    def _refuse_update(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"{self.name}: received an unsupported update for a variable that "
            f"{self._place_description}; change it with assign(), assign_add(), assign_sub(), "
            "scatter_add(), scatter_sub(), scatter_update(), scatter_max() or scatter_min()"
        )

    scatter_mul = scatter_div = batch_scatter_update = count_up_to = _refuse_update
    scatter_nd_max = scatter_nd_min = _refuse_update

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self.assign(restored_tensors["VARIABLE_VALUE"], read_value=False)
