"""Tables of which only rows travel, on one server: rows out, rows of gradients in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.shards import row_bytes_of
from tfps.optimizers.gathered_rows import end_to_end
from tfps.runtime.message.payload import decode_gradients, with_what_lies_behind
from tfps.runtime.message.places import decode_places
from tfps.runtime.message.wire import CallWire, gradient_name
from tfps.transport.packing import unpack

ID_BYTES = tf.int64.size


def gradients_of_rows(
    shards: Sequence[Any], ids: tf.Tensor, rows: tf.Tensor
) -> dict[str, tf.IndexedSlices]:
    """Gradients of shards, which are zero where no row came."""
    places = decode_places(shards, ids)
    natives = [shard._value for shard in shards]
    counts = [tf.size(each, tf.int64) for each in places]
    return {
        gradient_name(shard): tf.IndexedSlices(
            values, own, tf.constant(shard._value.shape.as_list(), tf.int64)
        )
        for shard, own, values in zip(
            shards, places, rows_in_turn(rows, natives, counts), strict=True
        )
    }


def rows_in_turn(
    data: tf.Tensor, natives: Sequence[Any], counts: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Bytes as the rows of several variables that they hold, one after the other.

    Args:
        data: all of them.
        natives: the variables.
        counts: how many rows there are of each, int64.
    """
    runs = [list(run) for _, run in itertools.groupby(range(len(natives)), _kind_in(natives))]
    sizes = [tf.add_n([counts[k] for k in run]) * row_bytes_of(natives[run[0]]) for run in runs]
    parts = [data] if len(runs) == 1 else tf.split(data, sizes)
    found: list[tf.Tensor] = []
    for run, part in zip(runs, parts, strict=True):
        rows = as_rows(part, natives[run[0]])
        found += [rows] if len(run) == 1 else tf.split(rows, [counts[k] for k in run])
    return found


def as_rows(data: tf.Tensor, native: Any) -> tf.Tensor:
    """Bytes as rows of a variable."""
    row_shape = list(native.shape[1:])
    if native.dtype.size == 1:
        return tf.reshape(tf.bitcast(data, native.dtype), [-1, *row_shape])
    numbers = tf.bitcast(tf.reshape(data, [-1, native.dtype.size]), native.dtype)
    return tf.reshape(numbers, [-1, *row_shape])


def as_bytes(rows: tf.Tensor) -> tf.Tensor:
    """Rows as bytes."""
    return tf.reshape(tf.bitcast(rows, tf.uint8), [-1])


def unpacked(wire: CallWire, ids: tf.Tensor, payload: tf.Tensor) -> dict[str, Any]:
    """The tensors of a push, by name; of tables the rows of gradients that came."""
    layout, rows = wire.server_request, {}
    if not (wire.tables or wire.longer):
        return decode_gradients(wire, unpack(layout, payload))
    behind, payload = payload[layout.size_bytes :], payload[: layout.size_bytes]
    tensors, behind = with_what_lies_behind(wire, unpack(layout, payload), behind)
    if wire.tables:
        rows = gradients_of_rows(wire.tables, ids, behind)
    return {**decode_gradients(wire, tensors), **rows}


def reply_ids(wire: CallWire, ids: tf.Tensor) -> tf.Tensor:
    """A reply to a push has none; those of a request that has none either are at hand."""
    return ids[:0] if wire.tables else ids


def received_bytes(wire: CallWire, ids: tf.Tensor, payload: tf.Tensor) -> Any:
    """How large a push is."""
    if not (wire.tables or wire.longer):
        return wire.request.size_bytes
    return tf.size(payload, tf.int64) + ID_BYTES * tf.size(ids, tf.int64)


def rows_of(shards: Sequence[Any], ids: tf.Tensor) -> tf.Tensor:
    """The rows that a look-up names, of all shards one after the other, as bytes."""
    natives = [shard._value for shard in shards]
    rows = [
        native.sparse_read(places)
        for native, places in zip(natives, decode_places(shards, ids), strict=True)
    ]
    parts = [
        as_bytes(end_to_end([rows[k] for k in run]))
        for _, run in itertools.groupby(range(len(rows)), _kind_in(natives))
    ]
    return end_to_end(parts)


def _kind_in(natives: Sequence[Any]) -> Callable[[int], Hashable]:
    """By which neighbours have rows alike, which become rows or bytes together."""
    return lambda number: (tuple(natives[number].shape[1:]), natives[number].dtype.name)
