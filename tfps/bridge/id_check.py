"""Ids that lie in no table are refused where they are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf


class AskedIds(NamedTuple):
    """Ids that rows are asked for by.

    Args:
        ids: int64, of any shape.
        rows: of the table, which has ids from 0 to one less.
        purpose: whose ids they are, for who reads the error.
    """

    ids: tf.Tensor
    rows: int
    purpose: str

    @classmethod
    def of(cls, ids: tf.Tensor, table: Any) -> AskedIds:
        """Ids of a variable, which has a path."""
        return cls(ids, table.shape[0], f"ids for {table.path}")

    @property
    def text(self) -> str:
        return (
            f"{self.purpose}, which has {self.rows} rows: expected 0 to {self.rows - 1}; map other "
            "ids to one of these, or give the table more rows"
        )


def check_ids(asked: Iterable[AskedIds]) -> tf.Operation:
    """Refuse ids that are in no table: as numbers without a sign, negative ones are large."""
    asked = list(asked)
    rows = tf.constant([each.rows for each in asked], tf.uint64)
    largest = tf.stack([tf.reduce_max(tf.bitcast(each.ids, tf.uint64)) for each in asked])
    is_wrong = largest >= rows
    first = tf.argmax(tf.cast(is_wrong, tf.int32))
    received = tf.bitcast(tf.gather(largest, first), tf.int64)
    return tf.raw_ops.Assert(
        condition=tf.logical_not(tf.reduce_any(is_wrong)),
        data=[
            tf.gather(tf.constant([each.text for each in asked]), first),
            tf.constant("received"),
            received,
        ],
        name="check_ids",
    )
