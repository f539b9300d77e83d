"""The blocks in which shards are stored, and the files of these blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.checkpoint.contents import StoredShard
from tfps.checkpoint.layout import RowBlock, blocks_of, grouped_by_bytes
from tfps.transport.chunk import chunk_bytes_from_environment

# The limit of bytes on their way at once, and of a block that is read for some of its rows.
MOST_BYTES = 64 * 2**20


def files_of(shards: Sequence[StoredShard]) -> list[list[tuple[StoredShard, RowBlock]]]:
    """Return the blocks of some shards, file by file."""
    limit_bytes = min(MOST_BYTES, chunk_bytes_from_environment())
    blocks = [
        ((shard, block), block.rows * shard.row_bytes)
        for shard in shards
        for block in blocks_of(
            tensor=shard.tensor,
            shard=shard.index,
            rows=shard.rows,
            rows_per_block=limit_bytes // max(1, shard.row_bytes),
        )
    ]
    return grouped_by_bytes(blocks, limit_bytes=limit_bytes)


def block_of_array(value: np.ndarray[Any, Any], block: RowBlock) -> np.ndarray[Any, Any]:
    """Return the rows of a block, from the value of its shard."""
    return value[block.places.start : block.places.stop] if value.ndim else value


def block_of_storage(storage: tf.Tensor, shard: StoredShard, block: RowBlock) -> tf.Tensor:
    """Return the rows of a block, from the value of the variable or slab that holds its shard.

    A slice along the first axis shares the memory of its source.
    """
    if shard.native.slab is not None:
        begin = shard.native.member.offset_items + block.begin * shard.row_items
        size = tf.constant([block.rows * shard.row_items], tf.int64)
        flat = tf.slice(storage, tf.constant([begin], tf.int64), size)
        return tf.reshape(flat, _shape(shard, block.rows))
    if block.rows == shard.rows:
        return storage
    begins = np.zeros([len(shard.shape)], np.int64)
    begins[0] = block.begin
    return tf.slice(storage, tf.constant(begins), tf.constant(_shape(shard, block.rows), tf.int64))


def _shape(shard: StoredShard, rows: int) -> list[int]:
    return [rows, *shard.shape[1:]] if shard.shape else []


def snapshot_name(storage: Any) -> str:
    """Return the name, on a server, of a variable's or slab's value during a save."""
    return f"snapshot_{storage.shared_name}"


def snapshot_handle(storage: Any) -> tf.Tensor:
    """Return the handle, on a server, of a variable's or slab's value during a save."""
    return private.variable_handle(
        shape=storage.shape,
        dtype=storage.dtype,
        shared_name=snapshot_name(storage),
        container=storage.container,
    )
