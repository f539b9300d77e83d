"""The shards of a Keras variable: what of it lies on one server each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.partitioners.row_rule import Contiguous, RowRule, rows_of, rows_per_shard

# Up to here the chief and workers have a variable whole where that is simpler: it is a fraction of
# the 500 MB that a task of TensorFlow takes anyway.
WHOLE_BYTES = 64 << 20


def shards_of(variable: Any) -> tuple[Any, ...]:
    """The Keras variables that lie on one server each: a variable itself, or its shards.

    Messages, slabs and optimizers on servers know shards; workers and users know variables.

    Args:
        variable: of Keras.
    """
    return getattr(variable._value, "shards", None) or (variable,)


def all_shards(variables: Iterable[Any]) -> list[Any]:
    """Of several variables, one after the other."""
    return [shard for variable in variables for shard in shards_of(variable)]


def size_bytes_of(native: Any) -> int:
    """The size of a TensorFlow variable."""
    return int(native.shape.num_elements() * native.dtype.size)


def row_bytes_of(native: Any) -> int:
    """The size of a row of a TensorFlow variable."""
    return int(native.shape[1:].num_elements() * native.dtype.size)


def rule_of(variable: Any) -> RowRule:
    """Which row of a variable lies in which of its shards, and where.

    Args:
        variable: of Keras.
    """
    rule: RowRule | None = getattr(variable._value, "rule", None)
    if rule is not None:
        return rule
    shape = variable._value.shape
    return Contiguous(shape[0] if shape.rank else 1, 1)


class RowsByShard(NamedTuple):
    """Numbers of rows by the shard that they lie in.

    Args:
        positions: of each shard's rows among all that were asked for.
        places: of them in the shard.
    """

    positions: list[tf.Tensor]
    places: list[tf.Tensor]

    @classmethod
    def by(cls, rule: RowRule, rows: tf.Tensor) -> RowsByShard:
        """Int64 numbers within the rule's, in a vector."""
        positions = tf.range(tf.size(rows))
        if rule.shards == 1:
            return cls([positions], [rows])
        shards = tf.cast(rule.shard_of(rows), tf.int32)
        parts = tf.dynamic_partition(positions, shards, rule.shards)
        return cls(parts, [tf.gather(rule.place_of(rows), part) for part in parts])


def cut(tensor: Any, rule: RowRule) -> list[Any]:
    """What each shard gets of a tensor or array of the variable's shape."""
    if rule.shards == 1:
        return [tensor]
    if isinstance(tensor, np.ndarray):
        return [tensor[rows_of(rule, shard)] for shard in range(rule.shards)]
    lengths = rows_per_shard(rule)
    if isinstance(rule, Contiguous):
        return list(tf.split(tensor, lengths))
    places = [tf.range(length, dtype=tf.int64) for length in lengths]
    return [tf.gather(tensor, rule.row_at(k, places[k])) for k in range(rule.shards)]


def joined(parts: Sequence[tf.Tensor], rule: RowRule) -> tf.Tensor:
    """The variable's tensor from what its shards have."""
    if rule.shards == 1:
        return parts[0]
    end_to_end = tf.concat(list(parts), 0)
    if isinstance(rule, Contiguous):
        return end_to_end
    rows = tf.range(rule.rows, dtype=tf.int64)
    begins = Contiguous(rule.rows, rule.shards).begin_of(rule.shard_of(rows))
    return tf.gather(end_to_end, begins + rule.place_of(rows))
