"""The blocks that shards are stored in, and the files that blocks go into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.checkpoint.contents import StoredShard
from tfps.checkpoint.layout import RowBlock, blocks_of, together
from tfps.transport.chunk import chunk_bytes_from_environment

# So much is on its way, or read for the sake of some of its rows, at once.
MOST_BYTES = 64 * 2**20


def files_of(shards: Sequence[StoredShard]) -> list[list[tuple[StoredShard, RowBlock]]]:
    """The blocks of some shards, file by file."""
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
    return together(blocks, limit_bytes=limit_bytes)


def block_of_array(value: np.ndarray[Any, Any], block: RowBlock) -> np.ndarray[Any, Any]:
    """The rows of a block, from the value of its shard."""
    return value[block.places.start : block.places.stop] if value.ndim else value


def block_of_storage(storage: tf.Tensor, shard: StoredShard, block: RowBlock) -> tf.Tensor:
    """The rows of a block, from what holds its shard: a variable's value, or a slab's.

    Slices along the first axis share the memory of what they are cut from.
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
    """What a server calls the value of a variable, or slab, while it is written."""
    return f"snapshot_{storage.shared_name}"


def snapshot_handle(storage: Any) -> tf.Tensor:
    """Where a server keeps the value of a variable, or slab, while it is written."""
    return private.variable_handle(
        shape=storage.shape,
        dtype=storage.dtype,
        shared_name=snapshot_name(storage),
        container=storage.container,
    )
