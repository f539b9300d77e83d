"""Ids that lie in no table are refused where they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def check_ids(ids: Mapping[int, tf.Tensor], tables: Sequence[Any]) -> tf.Operation:
    """Refuse ids that are in no table: as numbers without a sign, negative ones are large.

    Args:
        ids: int64, by the number of their table.
        tables: all there are, with a path and a shape.
    """
    asked = [tables[number] for number in ids]
    rows = tf.constant([table.shape[0] for table in asked], tf.uint64)
    largest = tf.stack([tf.reduce_max(tf.bitcast(each, tf.uint64), 0) for each in ids.values()])
    is_wrong = largest >= rows
    first = tf.argmax(tf.cast(is_wrong, tf.int32))
    texts = [
        f"ids for {table.path}, which has {table.shape[0]} rows: expected 0 to {table.shape[0] - 1}"
        for table in asked
    ]
    received = tf.bitcast(tf.gather(largest, first), tf.int64)
    return tf.raw_ops.Assert(
        condition=tf.logical_not(tf.reduce_any(is_wrong)),
        data=[tf.gather(tf.constant(texts), first), tf.constant("received"), received],
        name="check_ids",
    )
