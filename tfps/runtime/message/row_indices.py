"""Encodes the row indices of tables as the ids of a message.

First the number of rows of each shard in turn, then the indices of these rows in the shards. Both
are 32-bit numbers, two in one id, if 32 bits can hold each index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def choose_index_dtype(shards: Sequence[Any]) -> tf.DType:
    """Return the smaller integer type that can hold all row indices of some shards."""
    most = max(shard._value.shape[0] for shard in shards)
    return tf.int32 if most <= tf.int32.max else tf.int64


def encode_row_indices(
    shards: Sequence[Any], row_indices: Sequence[tuple[tf.Tensor, tf.Tensor] | None]
) -> tf.Tensor:
    """Encode row indices as the ids of a message.

    Args:
        shards: shards of tables on one server, as Keras variables.
        row_indices: the row indices in each of them, and how many these are, both int64; None: no
            rows.
    """
    dtype = choose_index_dtype(shards)
    counts = [0 if each is None else each[1] for each in row_indices]
    named = [each[0] for each in row_indices if each is not None]
    numbers = tf.concat([tf.convert_to_tensor(counts, tf.int64), *named], 0)
    if dtype == tf.int64:
        return numbers
    even = tf.pad(tf.cast(numbers, dtype), [[0, tf.size(numbers) % 2]])
    return tf.bitcast(tf.reshape(even, [-1, 2]), tf.int64)


def decode_row_indices(shards: Sequence[Any], ids: tf.Tensor) -> list[tf.Tensor]:
    """Decode the int64 row indices of each shard from the ids of a message."""
    if choose_index_dtype(shards) == tf.int32:
        ids = tf.cast(tf.reshape(tf.bitcast(ids, tf.int32), [-1]), tf.int64)
    counts, row_indices = ids[: len(shards)], ids[len(shards) :]
    rest = tf.size(row_indices, tf.int64) - tf.reduce_sum(counts)
    parts: list[tf.Tensor] = tf.split(
        row_indices, tf.concat([counts, rest[None]], 0), num=len(shards) + 1
    )
    return parts[:-1]
