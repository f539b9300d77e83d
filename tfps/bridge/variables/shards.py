"""Divides Keras variables into shards, each stored on one server, and joins them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.partitioners.row_rule import Contiguous, RowRule, rows_of, rows_per_shard

# Up to this size the chief and workers may hold a whole variable where that is simpler: it is a
# fraction of the 500 MB that a TensorFlow task needs anyway.
WHOLE_BYTES = 64 << 20


def get_shards(variable: Any) -> tuple[Any, ...]:
    """Return the Keras variables that are stored on one server each: the variable or its shards.

    Messages, slabs and optimizers on servers use shards; workers and users see variables.

    Args:
        variable: a Keras variable.
    """
    return getattr(variable._value, "shards", None) or (variable,)


def get_all_shards(variables: Iterable[Any]) -> list[Any]:
    """Return the shards of several variables, in the order of the variables."""
    return [shard for variable in variables for shard in get_shards(variable)]


def get_size_bytes(native: Any) -> int:
    """Return the size of a TensorFlow variable."""
    return int(native.shape.num_elements() * native.dtype.size)


def get_row_bytes(native: Any) -> int:
    """Return the size of a row of a TensorFlow variable."""
    return int(native.shape[1:].num_elements() * native.dtype.size)


def get_row_rule(variable: Any) -> RowRule:
    """Return the rule that assigns the rows of a variable to places in its shards.

    Args:
        variable: a Keras variable.
    """
    rule: RowRule | None = getattr(variable._value, "rule", None)
    if rule is not None:
        return rule
    shape = variable._value.shape
    return Contiguous(shape[0] if shape.rank else 1, 1)


class RowsByShard(NamedTuple):
    """Requested row numbers, grouped by shard.

    Args:
        positions: for each shard, the positions of its rows in the request.
        row_indices: for each shard, the indices of these rows in the shard.
    """

    positions: list[tf.Tensor]
    row_indices: list[tf.Tensor]

    @classmethod
    def from_rows(cls, rule: RowRule, rows: tf.Tensor) -> RowsByShard:
        """Group a vector of valid int64 row numbers by shard."""
        positions = tf.range(tf.size(rows))
        if rule.shards == 1:
            return cls([positions], [rows])
        shards = tf.cast(rule.shard_of(rows), tf.int32)
        parts = tf.dynamic_partition(positions, shards, rule.shards)
        return cls(parts, [tf.gather(rule.place_of(rows), part) for part in parts])


def split_by_rule(tensor: Any, rule: RowRule) -> list[Any]:
    """Divide a tensor or array of the variable's shape into one part for each shard."""
    if rule.shards == 1:
        return [tensor]
    if isinstance(tensor, np.ndarray):
        return [tensor[rows_of(rule, shard)] for shard in range(rule.shards)]
    lengths = rows_per_shard(rule)
    if isinstance(rule, Contiguous):
        return list(tf.split(tensor, lengths))
    row_indices = [tf.range(length, dtype=tf.int64) for length in lengths]
    return [tf.gather(tensor, rule.row_at(k, row_indices[k])) for k in range(rule.shards)]


def join_by_rule(parts: Sequence[tf.Tensor], rule: RowRule) -> tf.Tensor:
    """Join the parts of the shards into the variable's tensor."""
    if rule.shards == 1:
        return parts[0]
    end_to_end = tf.concat(list(parts), 0)
    if isinstance(rule, Contiguous):
        return end_to_end
    rows = tf.range(rule.rows, dtype=tf.int64)
    begins = Contiguous(rule.rows, rule.shards).begin_of(rule.shard_of(rows))
    return tf.gather(end_to_end, begins + rule.place_of(rows))
