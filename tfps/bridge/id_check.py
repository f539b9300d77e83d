"""Raises an error for ids that are outside of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf


class RequestedIds(NamedTuple):
    """The ids of requested rows.

    Args:
        ids: int64, of any shape.
        rows: the number of rows of the table; valid ids are 0 to ``rows - 1``.
        purpose: a description of the ids for the error's text.
    """

    ids: tf.Tensor
    rows: int
    purpose: str

    @classmethod
    def from_ids(cls, ids: tf.Tensor, table: Any) -> RequestedIds:
        """Wrap ids of a table, which is a variable with a path and a shape."""
        return cls(ids, table.shape[0], f"ids for {table.path}")

    @property
    def expectation(self) -> str:
        return (
            f"{self.purpose}: expected 0 to {self.rows - 1}; map other ids to this range, or give "
            "the table more rows;"
        )


def check_ids(requested: Iterable[RequestedIds]) -> tf.Operation:
    """Return an operation that fails for ids outside of their table.

    The ids are compared as unsigned numbers, so that negative ones are large.
    """
    requested = list(requested)
    rows = tf.constant([each.rows for each in requested], tf.uint64)
    largest = tf.stack([tf.reduce_max(tf.bitcast(each.ids, tf.uint64)) for each in requested])
    is_wrong = largest >= rows
    first = tf.argmax(tf.cast(is_wrong, tf.int32))
    received = tf.bitcast(tf.gather(largest, first), tf.int64)
    return tf.raw_ops.Assert(
        condition=tf.logical_not(tf.reduce_any(is_wrong)),
        data=[
            tf.gather(tf.constant([each.expectation for each in requested]), first),
            tf.constant("received"),
            received,
        ],
        name="check_ids",
    )
