"""Reads and writes single rows of variables on servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.server_access import get_watch
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import WHOLE_BYTES, get_row_bytes, get_size_bytes

T = TypeVar("T")

# Large enough that the overhead of a request is small, and small compared to a task's memory.
BLOCK_BYTES = 16 << 20


def is_large(value: Any) -> bool:
    """Return whether a value is a Keras variable on servers that is too large for one task."""
    native = getattr(value, "_value", None)
    return isinstance(native, ServerVariable) and get_size_bytes(native) > WHOLE_BYTES


def iter_row_ranges(native: ServerVariable, *, within: range | None = None) -> Iterator[range]:
    """Yield ranges of row numbers that divide a variable into blocks of at least one row.

    Args:
        native: a variable of any kind with at least one axis.
        within: a range of rows; None for all rows.
    """
    rows = max(1, BLOCK_BYTES // max(1, get_row_bytes(native)))
    wanted = range(native.shape[0]) if within is None else within
    for begin in range(wanted.start, wanted.stop, rows):
        yield range(begin, min(begin + rows, wanted.stop))


def read_block(native: ServerVariable, block: range) -> np.ndarray[Any, Any]:
    """Read neighbouring rows of a variable eagerly; the chief receives no other rows.

    Args:
        native: a variable that is whole on a server, in a slab, or sharded.
        block: the rows.
    """

    def read() -> np.ndarray[Any, Any]:
        shape = (len(block), *native.shape[1:])
        result: np.ndarray[Any, Any] = np.empty(shape, native.dtype.as_numpy_dtype)
        for part in _split_block(native, block):
            result[part.positions] = _read_rows(part.native, part.row_indices)
        return result

    return _repeat_access(native, read)


def write_block(native: ServerVariable, block: range, values: np.ndarray[Any, Any]) -> None:
    """Write neighbouring rows of a variable eagerly.

    Args:
        native: a variable that is whole on a server, in a slab, or sharded.
        block: the rows.
        values: the new values of these rows.
    """

    def write() -> None:
        for part in _split_block(native, block):
            with private.placed_on(part.native.device):
                value = tf.identity(tf.constant(values[part.positions], native.dtype))
                write_rows(part.native, part.row_indices, value)
            storage = part.native if part.native.slab is None else part.native.slab
            storage.count_write()

    _repeat_access(native, write)


def write_rows(native: ServerVariable, rows: Any, value: tf.Tensor) -> tf.Operation:
    """Write rows of a variable that is whole on a server, or in a slab.

    Args:
        native: the variable on the server.
        rows: the row numbers; a `range`, or an int64 vector if they are irregular.
        value: the new values of these rows.
    """
    if isinstance(rows, range) and rows == range(native.shape[0] if native.shape.rank else 1):
        return native.assign(tf.reshape(value, native.shape), read_value=False)
    if native.slab is None:
        return _write_to_handle(native.handle, rows, value)
    member, items = native.member, native.shape[1:].num_elements()
    if isinstance(rows, range) and rows.step == 1:
        first = member.offset_items + rows.start * items
        flat: tf.Tensor | range = range(first, first + len(rows) * items)
    else:
        first_items = member.offset_items + _to_vector(rows) * items
        within = tf.range(items, dtype=tf.int64)
        flat = tf.reshape(first_items[:, None] + within[None, :], [-1])
    return _write_to_handle(native.slab.handle, flat, tf.reshape(value, [-1]))


class _Part(NamedTuple):
    """The requested rows that are in one variable on a server."""

    native: Any
    positions: Any  # their positions among all requested rows
    row_indices: Any  # their rows in the variable; a range, or an array if they are irregular


def _split_block(native: Any, block: range) -> Iterator[_Part]:
    rule = getattr(native, "rule", None)
    if rule is None:
        yield _Part(native, slice(None), block)
        return
    rows = np.arange(block.start, block.stop)
    shards = rule.shard_of(rows)
    for number, part in enumerate(native.variables):
        positions = np.flatnonzero(shards == number)
        if not positions.size:
            continue
        row_indices = rule.place_of(rows[positions])
        neighbours = range(int(row_indices[0]), int(row_indices[0]) + len(row_indices))
        is_regular = np.array_equal(row_indices, neighbours)
        yield _Part(part, positions, neighbours if is_regular else row_indices)


def _read_rows(native: Any, row_indices: Any) -> np.ndarray[Any, Any]:
    if not isinstance(row_indices, range):
        return native.sparse_read(tf.constant(row_indices, tf.int64)).numpy()
    # Without a copy, which the server would make of all of it for each block.
    value = native._read_variable_op(no_copy=True)
    with private.placed_on(native.device):
        part = value[row_indices.start : row_indices.stop]
    return part.numpy()


def _repeat_access(native: ServerVariable, access: Callable[[], T]) -> T:
    watch = get_watch(native.container)
    return access() if watch is None else watch.repeat(access)


def _write_to_handle(handle: tf.Tensor, rows: Any, value: tf.Tensor) -> tf.Operation:
    if isinstance(rows, range):
        tf.raw_ops.ResourceStridedSliceAssign(
            ref=handle,
            begin=tf.constant([rows.start], tf.int64),
            end=tf.constant([rows.stop], tf.int64),
            strides=tf.constant([rows.step], tf.int64),
            value=value,
        )
    else:
        tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=rows, updates=value)
    # A write to a part makes every later read copy the whole variable, unless this is called.
    return tf.raw_ops.DisableCopyOnRead(resource=handle)


def _to_vector(rows: Any) -> tf.Tensor:
    if isinstance(rows, range):
        return tf.range(rows.start, rows.stop, rows.step, dtype=tf.int64)
    return tf.convert_to_tensor(rows, tf.int64)
