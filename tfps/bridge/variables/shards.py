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


class OrderedRows(NamedTuple):
    """Requested rows in the order of the shards that hold them.

    Args:
        places: for each requested row, its index in this order, int32.
        row_indices: for each shard, the indices of its rows in the shard.
    """

    places: tf.Tensor
    row_indices: list[tf.Tensor]

    @classmethod
    def from_requests(cls, rule: RowRule, requests: Sequence[tf.Tensor]) -> list[OrderedRows]:
        """Order vectors of valid int64 row numbers, each by itself, by one computation for all."""
        shards, number = rule.shards, len(requests)
        if shards == 1:
            return [cls(tf.range(tf.size(rows)), [rows]) for rows in requests]
        if number == 1:
            (rows,) = requests
            return [cls(*_divide(rows, tf.cast(rule.shard_of(rows), tf.int32), shards, rule))]
        rows, sizes = tf.concat(list(requests), 0), tf.stack([tf.size(each) for each in requests])
        ends = tf.cumsum(sizes)
        request = tf.searchsorted(ends, tf.range(tf.size(rows)), side="right")
        parts = request * shards + tf.cast(rule.shard_of(rows), tf.int32)
        places, row_indices = _divide(rows, parts, number * shards, rule)
        own = tf.split(places - tf.gather(ends - sizes, request), sizes)
        return [cls(own[k], row_indices[k * shards : (k + 1) * shards]) for k in range(number)]


def _divide(
    rows: tf.Tensor, parts: tf.Tensor, number: int, rule: RowRule
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the index of each row in the order of the parts, and the rows' indices by part."""
    order = tf.concat(tf.dynamic_partition(tf.range(tf.size(rows)), parts, number), 0)
    row_indices: list[tf.Tensor] = tf.dynamic_partition(rule.place_of(rows), parts, number)
    return tf.math.invert_permutation(order), row_indices


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
