"""Tables of which only rows travel, on one server: rows out, rows of gradients in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.shards import row_bytes_of
from tfps.optimizers.gathered_rows import end_to_end
from tfps.runtime.message.payload import decode_gradients
from tfps.runtime.message.places import decode_places
from tfps.runtime.message.wire import CallWire, gradient_name
from tfps.transport.packing import unpack

ID_BYTES = tf.int64.size


def gradients_of_rows(
    shards: Sequence[Any], ids: tf.Tensor, rows: tf.Tensor
) -> dict[str, tf.IndexedSlices]:
    """Gradients of shards, which are zero where no row came."""
    gradients, begin = {}, tf.constant(0, tf.int64)
    for shard, places in zip(shards, decode_places(shards, ids), strict=True):
        native = shard._value
        size = tf.size(places, tf.int64) * row_bytes_of(native)
        values = as_rows(rows[begin : begin + size], native)
        shape = tf.constant(native.shape.as_list(), tf.int64)
        gradients[gradient_name(shard)] = tf.IndexedSlices(values, places, shape)
        begin += size
    return gradients


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
    if wire.tables:
        rows = gradients_of_rows(wire.tables, ids, payload[layout.size_bytes :])
        payload = payload[: layout.size_bytes]
    return {**decode_gradients(wire, unpack(layout, payload)), **rows}


def reply_ids(wire: CallWire, ids: tf.Tensor) -> tf.Tensor:
    """A reply to a push has none; those of a request that has none either are at hand."""
    return ids[:0] if wire.tables else ids


def received_bytes(wire: CallWire, ids: tf.Tensor, payload: tf.Tensor) -> Any:
    """How large a push is."""
    if not wire.tables:
        return wire.request.size_bytes
    return tf.size(payload, tf.int64) + ID_BYTES * tf.size(ids, tf.int64)


def rows_of(shards: Sequence[Any], ids: tf.Tensor) -> tf.Tensor:
    """The rows that a look-up names, of all shards one after the other, as bytes."""
    natives = [shard._value for shard in shards]
    rows = [
        native.sparse_read(places)
        for native, places in zip(natives, decode_places(shards, ids), strict=True)
    ]
    # Those of neighbours with rows alike become bytes together.
    parts = [
        as_bytes(end_to_end([each for _, each in run]))
        for _, run in itertools.groupby(
            zip(natives, rows, strict=True),
            key=lambda pair: (tuple(pair[0].shape[1:]), pair[0].dtype.name),
        )
    ]
    return end_to_end(parts)
