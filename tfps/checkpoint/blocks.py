"""The blocks that pieces are stored in, and the files that blocks go into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.checkpoint.contents import Piece
from tfps.checkpoint.layout import RowBlock, divided, together
from tfps.transport.chunk import chunk_bytes_from_environment

# So much is on its way, or read for the sake of some of its rows, at once.
MOST_BYTES = 64 * 2**20


def files_of(pieces: Sequence[Piece]) -> list[list[tuple[Piece, RowBlock]]]:
    """The blocks of some pieces, file by file."""
    limit_bytes = min(MOST_BYTES, chunk_bytes_from_environment())
    blocks = [
        ((piece, block), block.rows * piece.row_bytes)
        for piece in pieces
        for block in divided(
            tensor=piece.tensor,
            shard=piece.shard,
            rows=piece.rows,
            rows_per_block=limit_bytes // max(1, piece.row_bytes),
        )
    ]
    return together(blocks, limit_bytes=limit_bytes)


def block_of_array(value: np.ndarray[Any, Any], block: RowBlock) -> np.ndarray[Any, Any]:
    """The rows of a block, from the value of its piece."""
    return value[block.places.start : block.places.stop] if value.ndim else value


def block_of_storage(storage: tf.Tensor, piece: Piece, block: RowBlock) -> tf.Tensor:
    """The rows of a block, from what holds its piece: a variable's value, or a slab's.

    Slices along the first axis share the memory of what they are cut from.
    """
    if piece.native.slab is not None:
        begin = piece.native.member.offset_items + block.begin * piece.row_items
        size = tf.constant([block.rows * piece.row_items], tf.int64)
        flat = tf.slice(storage, tf.constant([begin], tf.int64), size)
        return tf.reshape(flat, _shape(piece, block.rows))
    if block.rows == piece.rows:
        return storage
    begins = np.zeros([len(piece.shape)], np.int64)
    begins[0] = block.begin
    return tf.slice(storage, tf.constant(begins), tf.constant(_shape(piece, block.rows), tf.int64))


def write_rows(piece: Piece, rows: tf.Tensor | range, value: tf.Tensor) -> tf.Operation:
    """Trace, in a server function, that rows of a piece get a value.

    Args:
        piece: of that server.
        rows: which; an int64 vector where they are irregular.
        value: as many rows.
    """
    native = piece.native
    if isinstance(rows, range) and rows == range(piece.rows):
        return native.assign(tf.reshape(value, piece.shape), read_value=False)
    if native.slab is None:
        return _write(native.handle, rows, value)
    member, items = native.member, piece.row_items
    if isinstance(rows, range) and rows.step == 1:
        first = member.offset_items + rows.start * items
        flat: tf.Tensor | range = range(first, first + len(rows) * items)
    else:
        first_items = member.offset_items + _vector(rows) * items
        within = tf.range(items, dtype=tf.int64)
        flat = tf.reshape(first_items[:, None] + within[None, :], [-1])
    return _write(native.slab.handle, flat, tf.reshape(value, [-1]))


def _write(handle: tf.Tensor, rows: tf.Tensor | range, value: tf.Tensor) -> tf.Operation:
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
    # A write to a part makes every later read copy the whole variable, until this is said.
    return tf.raw_ops.DisableCopyOnRead(resource=handle)


def _vector(rows: tf.Tensor | range) -> tf.Tensor:
    if isinstance(rows, range):
        return tf.range(rows.start, rows.stop, rows.step, dtype=tf.int64)
    return rows


def _shape(piece: Piece, rows: int) -> list[int]:
    return [rows, *piece.shape[1:]] if piece.shape else []


def snapshot_handle(storage: Any) -> tf.Tensor:
    """Where a server keeps the value of a variable, or slab, while it is written."""
    return private.variable_handle(
        shape=storage.shape,
        dtype=storage.dtype,
        shared_name=f"snapshot_{storage.shared_name}",
        container=storage.resource.container,
    )
