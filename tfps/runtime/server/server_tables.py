"""Reads rows of tables for look-ups, and unpacks row gradients from pushes, on one server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.optimizers.loss_scaling import unscale_gradient
from tfps.runtime.message.payload import decode_gradients
from tfps.runtime.message.row_format import RowFormat, decode_all_rows, encode_all_rows
from tfps.runtime.message.row_indices import decode_row_indices
from tfps.runtime.message.wire import (
    CallWire,
    get_gradient_name,
    get_native_gradient_name,
    get_scale_name,
    get_variable_name,
)
from tfps.transport.packing import unpack

ID_BYTES = tf.int64.size


def unpack_row_gradients(
    wire: CallWire, ids: tf.Tensor, rows: tf.Tensor
) -> dict[str, tf.IndexedSlices]:
    """Unpack the sparse gradients of table shards from the ids and rows of a push."""
    shards = wire.tables
    row_indices = decode_row_indices(shards, ids)
    counts = [tf.size(each, tf.int64) for each in row_indices]
    return {
        get_gradient_name(shard): tf.IndexedSlices(
            values, indices, tf.constant(shard._value.shape.as_list(), tf.int64)
        )
        for shard, indices, values in zip(
            shards, row_indices, decode_all_rows(rows, wire.row_formats, counts), strict=True
        )
    }


def unpack_push(wire: CallWire, ids: tf.Tensor, payload: tf.Tensor) -> dict[str, Any]:
    """Unpack the tensors of a push, by name; the gradients of tables are sparse."""
    layout = wire.server_request
    if not wire.tables:
        return _unscale(wire, decode_gradients(wire, unpack(layout, payload)))
    rows = unpack_row_gradients(wire, ids, payload[layout.size_bytes :])
    tensors = unpack(layout, payload[: layout.size_bytes])
    return _unscale(wire, {**decode_gradients(wire, tensors), **rows})


def _unscale(wire: CallWire, tensors: dict[str, Any]) -> dict[str, Any]:
    """Divide gradients of a scaled loss by the scale that comes with them.

    This comes before any decision: gradients of a round may have different scales.
    """
    if wire.scale is None:
        return tensors
    shards = wire.gradients.variables
    exempt = {get_variable_name(v) for v in shards if getattr(v, "overwrite_with_gradient", False)}
    names = [
        get_native_gradient_name(n) for n in wire.updated_variables if n.shared_name not in exempt
    ]
    scale = tensors[get_scale_name(wire.scale)]
    return {**tensors, **{name: unscale_gradient(tensors[name], scale) for name in names}}


def get_reply_ids(wire: CallWire, ids: tf.Tensor) -> tf.Tensor:
    """Return the ids of a reply to a push, which are always empty."""
    return ids[:0] if wire.tables else ids


def compute_received_bytes(wire: CallWire, ids: tf.Tensor, payload: tf.Tensor) -> Any:
    """Return the size of a push in bytes."""
    if not wire.tables:
        return wire.request.size_bytes
    return tf.size(payload, tf.int64) + ID_BYTES * tf.size(ids, tf.int64)


def read_encoded_rows(
    shards: Sequence[Any],
    formats: Sequence[RowFormat],
    row_indices: Sequence[tf.Tensor],
    *,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Read the rows of a look-up from all shards, and return them as bytes.

    Args:
        shards: shards of tables, as Keras variables.
        formats: the formats of their rows.
        row_indices: the indices of rows, for each of the shards.
        seed: int64 [2], the seed of codecs.
    """
    rows = [shard._value.sparse_read(each) for shard, each in zip(shards, row_indices, strict=True)]
    return encode_all_rows(formats, rows, seed=seed)
