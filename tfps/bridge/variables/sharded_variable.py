"""A variable whose rows are stored on several servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.composed_variable import ComposedVariable
from tfps.bridge.variables.row_blocks import iter_row_ranges, read_block, write_block
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import (
    WHOLE_BYTES,
    OrderedRows,
    get_size_bytes,
    join_by_rule,
    split_by_rule,
)
from tfps.partitioners.row_rule import Contiguous, RowRule, rows_of, rows_per_shard


class ShardedVariable(ComposedVariable):
    """A variable whose rows are divided between servers; users see one tensor.

    TensorFlow's class of this name has no handle and no device, so no layer of Keras 3 can be built
    with it.

    Args:
        natives: the variables on the servers, in the order of the rule's shards.
        rule: the rule that assigns rows to shards.
        unique_id: the key by which programs and optimizers find the variable.
        path: the path of the Keras variable.
        options: further arguments of a variable.
    """

    def __init__(
        self,
        natives: Sequence[ServerVariable],
        *,
        rule: RowRule,
        unique_id: str,
        path: str,
        **options: Any,
    ) -> None:
        first = natives[0]
        self.rule = rule
        # Keras variables, because optimizers on servers update these.
        self.path = path
        self.shards = tuple(
            wrap_native_variable(native, path=f"{path}/{number}")
            for number, native in enumerate(natives)
        )
        self._tfps_container = first.container
        self._tfps_device = first.device  # for what belongs to the variable but is no shard
        self._tfps_devices = list(dict.fromkeys(native.device for native in natives))
        super().__init__(
            shape=tf.TensorShape([rule.rows, *first.shape[1:]]),
            dtype=first.dtype,
            unique_id=unique_id,
            handle_name=unique_id,
            **options,
        )

    @property
    def variables(self) -> list[ServerVariable]:
        """The variables of the shards, as in TensorFlow's `ShardedVariable`.

        They are separate variables, or views into slabs.
        """
        return [shard._value for shard in self.shards]

    def is_initialized(self, name: Any = None) -> tf.Tensor:
        return tf.reduce_all([native.is_initialized(name) for native in self.variables])

    def read_composed(self, no_copy: bool = False) -> tf.Tensor:
        return join_by_rule(
            [native._read_variable_op(no_copy) for native in self.variables], self.rule
        )

    def numpy(self) -> Any:
        if not tf.executing_eagerly():
            return super().numpy()
        result = np.empty(tuple(self.shape), self.dtype.as_numpy_dtype)
        for number, native in enumerate(self.variables):
            result[rows_of(self.rule, number)] = native.numpy()
        return result

    def sparse_read(self, indices: Any, name: Any = None) -> tf.Tensor:
        """Return rows by number; requests from each server only the rows that it stores."""
        rows = tf.reshape(tf.cast(indices, tf.int64), [-1])
        number = tf.constant(self.rule.rows, tf.int64)
        checks = [
            tf.debugging.assert_non_negative(rows, f"rows of {self.path}"),
            tf.debugging.assert_less(
                rows, number, f"rows of {self.path}, which has {self.rule.rows}"
            ),
        ]
        with tf.control_dependencies([check for check in checks if check is not None]):
            rows = tf.identity(rows)
        looked_up = private.read_differentiably(self, lambda: self._look_up_rows(rows), rows=rows)
        return tf.reshape(looked_up, tf.concat([tf.shape(indices), self.shape[1:]], 0), name=name)

    def _look_up_rows(self, rows: tf.Tensor) -> tf.Tensor:
        (ordered,) = OrderedRows.from_requests(self.rule, [rows])
        parts = [
            native.sparse_read(row_indices)
            for native, row_indices in zip(self.variables, ordered.row_indices, strict=True)
        ]
        return tf.gather(tf.concat(parts, 0), ordered.places)

    def gather_nd(self, indices: Any, name: Any = None) -> tf.Tensor:
        return tf.gather_nd(tf.convert_to_tensor(self._read_variable_op()), indices, name=name)

    def assign(
        self, value: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        if isinstance(value, np.ndarray):  # a table may be too large for a tensor's message
            self.shape.assert_is_compatible_with(value.shape)
        else:
            value = self._convert_checked(value)
        return self._apply_to_shards("assign", value, read_value)

    def assign_add(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        return self._apply_to_shards("assign_add", self._broadcast(delta), read_value)

    def assign_sub(
        self, delta: Any, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        return self._apply_to_shards("assign_sub", self._broadcast(delta), read_value)

    def _broadcast(self, delta: Any) -> tf.Tensor:
        return tf.broadcast_to(tf.convert_to_tensor(delta, dtype=self.dtype), self.shape)

    def _apply_to_shards(self, operation: str, value: Any, read_value: bool) -> Any:
        """Apply an operation to each shard; return the same kind of value as `tf.Variable`."""
        parts = split_by_rule(value, self.rule)
        done = [
            getattr(native, operation)(part, read_value=False)
            for native, part in zip(self.variables, parts, strict=True)
        ]
        if read_value:
            return self
        return None if tf.executing_eagerly() else tf.group(*done)

    @property
    def _place_description(self) -> str:
        return f"is divided into {self.rule.shards} shards"

    def _serialize_to_tensors(self) -> dict[str, Any]:
        """Return slices of the logical tensor, from which any other sharding can be restored."""
        if isinstance(self.rule, Contiguous):
            slices = {}
            for number, native in enumerate(self.variables):
                with private.placed_on(native.device):
                    slices[self._format_slice(self._get_contiguous_rows(number))] = tf.identity(
                        native._read_variable_op()
                    )
            return {"VARIABLE_VALUE": slices}
        if tf.executing_eagerly() and get_size_bytes(self) > WHOLE_BYTES:
            return {"VARIABLE_VALUE": dict(self._iter_slices())}
        return super()._serialize_to_tensors()

    def _iter_slices(self) -> Iterator[tuple[str, tf.Tensor]]:
        """Yield slices of neighbouring rows, on each server as many rows as its shard has."""
        for number, native in enumerate(self.variables):
            for block in iter_row_ranges(self, within=self._get_contiguous_rows(number)):
                rows = tf.constant(read_block(self, block))
                with private.placed_on(native.device):
                    yield self._format_slice(block), tf.identity(rows)

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        saved = restored_tensors["VARIABLE_VALUE"]
        if not isinstance(saved, dict):
            return self.assign(saved, read_value=False)
        if not isinstance(self.rule, Contiguous):
            for number in range(self.rule.shards):
                for block in iter_row_ranges(self, within=self._get_contiguous_rows(number)):
                    write_block(self, block, saved[self._format_slice(block)].numpy())
            return None
        done = [
            native.assign(
                saved[self._format_slice(self._get_contiguous_rows(number))], read_value=False
            )
            for number, native in enumerate(self.variables)
        ]
        return None if tf.executing_eagerly() else tf.group(*done)

    def _get_contiguous_rows(self, shard: int) -> range:
        """Return the rows that a shard would have under a contiguous rule."""
        rule = Contiguous(self.rule.rows, self.rule.shards)
        begin = rule.begin_of(shard)
        return range(begin, begin + rows_per_shard(rule)[shard])

    def _format_slice(self, rows: range) -> str:
        """Return TensorFlow's slice spec of some rows: shape, and begin and length of each axis."""
        rest = [f"0,{axis}" for axis in self.shape[1:]]
        shape = " ".join(str(axis) for axis in self.shape)
        return f"{shape} {':'.join([f'{rows.start},{len(rows)}', *rest])}"


def wrap_native_variable(native: ServerVariable, *, path: str) -> Any:
    """Return a Keras variable that wraps an existing variable.

    Args:
        native: the existing variable.
        path: the path of the Keras variable.
    """
    with tf.variable_creator_scope(lambda *_, **__: native):
        variable = keras.Variable(
            tf.zeros,
            shape=tuple(native.shape),
            dtype=native.dtype.name,
            name=native.shared_name.replace("/", "_"),
        )
    variable._path = path
    return variable
