"""Rows that no message can bring are refused before they are asked for."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfps.runtime.message.row_format import RowFormat
from tfps.runtime.worker.shard_rows import ShardRows


def whole_bytes(parts: Sequence[ShardRows], formats: Sequence[RowFormat]) -> tf.Tensor:
    """The bytes of the rows of some shards, as they travel."""
    counts = tf.stack([tf.size(part.places, tf.int64) for part in parts])
    return tf.reduce_sum(counts * [each.size_bytes for each in formats])


def refuse_too_many(
    parts: Sequence[ShardRows],
    formats: Sequence[RowFormat],
    *,
    tables: Sequence[str],
    longest_bytes: int,
) -> tf.Operation:
    """Raise an error if one server is asked for more bytes of rows than a message may have.

    Args:
        parts: the rows, by shard, all of one server.
        formats: how rows of these shards travel.
        tables: their names.
        longest_bytes: of a message.
    """
    server, asked = parts[0].server, whole_bytes(parts, formats)
    return tf.raw_ops.Assert(
        condition=asked <= longest_bytes,
        data=[
            f"rows of {', '.join(tables)}: received ids of",
            asked,
            # TensorFlow shows quotation marks with a backslash.
            f"bytes on ps {server}, expected {longest_bytes} at most, which one message over grpc "
            "may have. Use the carrier direct (start all tasks with tfps run or tfps serve), "
            "smaller batches, or a partitioner and more servers",
        ],
        name="check_rows",
    )
