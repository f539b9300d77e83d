"""Divide shards into the blocks and files in which they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.checkpoint.contents import StoredShard
from tfps.checkpoint.layout import RowBlock, divide_into_blocks, group_by_bytes
from tfps.transport.chunk import chunk_bytes_from_environment

# The limit of bytes on their way at once, and of a block that is read for some of its rows.
MAX_FILE_BYTES = 64 * 2**20


def group_blocks_by_file(shards: Sequence[StoredShard]) -> list[list[tuple[StoredShard, RowBlock]]]:
    """Return the blocks of each file in which some shards are stored."""
    limit_bytes = min(MAX_FILE_BYTES, chunk_bytes_from_environment())
    blocks = [
        ((shard, block), block.rows * shard.row_bytes)
        for shard in shards
        for block in divide_into_blocks(
            tensor=shard.tensor,
            shard=shard.index,
            rows=shard.rows,
            rows_per_block=limit_bytes // max(1, shard.row_bytes),
        )
    ]
    return group_by_bytes(blocks, limit_bytes=limit_bytes)


def slice_array(value: np.ndarray[Any, Any], block: RowBlock) -> np.ndarray[Any, Any]:
    """Slice the rows of a block from its shard's value, an array."""
    return value[block.places.start : block.places.stop] if value.ndim else value


def slice_storage(storage: tf.Tensor, shard: StoredShard, block: RowBlock) -> tf.Tensor:
    """Slice the rows of a block from the variable or slab that holds its shard.

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
    """Return the server's name for the saved copy of a variable or slab."""
    return f"snapshot_{storage.shared_name}"


def snapshot_handle(storage: Any) -> tf.Tensor:
    """Return the server's handle for the saved copy of a variable or slab."""
    return private.create_variable_handle(
        shape=storage.shape,
        dtype=storage.dtype,
        shared_name=snapshot_name(storage),
        container=storage.container,
    )
