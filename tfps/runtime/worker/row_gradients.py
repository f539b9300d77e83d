"""Sums up the rows of a table's gradient, and encodes them for servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.keras_private import LossScaleOptimizer
from tfps.optimizers.wrapped import unwrap_optimizer
from tfps.runtime.message.payload import Body
from tfps.runtime.message.row_indices import encode_row_indices
from tfps.runtime.message.wire import CallWire
from tfps.runtime.worker.shard_rows import DistinctRows, ShardRows


class RowValues(NamedTuple):
    """Rows of a table's gradient, each once, in the order of `DistinctRows`."""

    values: tf.Tensor
    parts: Sequence[ShardRows]

    @classmethod
    def from_gradient(cls, gradient: tf.IndexedSlices, rows: DistinctRows) -> RowValues:
        """Return the rows of a gradient, summed up if an id occurs more than once.

        Args:
            gradient: the gradient of the table.
            rows: the rows that its ids name.
        """
        values = tf.math.unsorted_segment_sum(gradient.values, rows.positions, rows.size)
        return cls(values, rows.parts)

    @property
    def values_by_part(self) -> list[tf.Tensor]:
        """The values of the rows of each part."""
        sizes = [part.size for part in self.parts]
        if len(sizes) == 1:
            return [self.values]
        return tf.split(self.values, tf.stack(sizes), num=len(sizes))


def build_row_bodies(
    gradients: Iterable[RowValues],
    *,
    optimizer: Any,
    wires: Sequence[CallWire],
    seed: tf.Tensor | None = None,
) -> dict[int, Body]:
    """Build the bodies of a push, by server, that contain the row gradients of tables.

    Args:
        gradients: the gradients of the call's tables, in its order.
        optimizer: the optimizer of the call.
        wires: the message formats of the call, by server.
        seed: int64 [2], the seed of codecs; None: there are none.
    """
    formats = {
        id(shard): each
        for wire in wires
        for shard, each in zip(wire.tables, wire.row_formats, strict=True)
    }
    pushed: dict[int, list[ShardRows]] = {}
    values: dict[int, list[tf.Tensor]] = {}
    skips_together = isinstance(unwrap_optimizer(optimizer), LossScaleOptimizer)
    for rows in gradients:
        for part, own_values in zip(rows.parts, rows.values_by_part, strict=True):
            pushed_part, part_values = part, tf.cast(own_values, part.native.dtype)
            if skips_together:
                pushed_part, part_values = _mark_if_not_finite(
                    part, part_values, of_all=rows.values
                )
            pushed.setdefault(part.server, []).append(pushed_part)
            data = formats[id(part.shard)].encode(part_values, seed=seed)
            values.setdefault(part.server, []).append(data)
    return {p: Body(tf.concat(values[p], 0), _encode_ids(pushed[p])) for p in pushed}


def _mark_if_not_finite(
    part: ShardRows, rows: tf.Tensor, *, of_all: tf.Tensor
) -> tuple[ShardRows, tf.Tensor]:
    """Add a NaN row if there are no rows and a gradient is not finite, so that all servers skip."""
    is_finite = tf.reduce_all(tf.math.is_finite(of_all))
    more = tf.cast(tf.logical_not(is_finite) & tf.equal(part.size, 0), tf.int32)
    missing = tf.fill(tf.concat([more[None], tf.shape(rows)[1:]], 0), float("nan"))
    row_indices = tf.concat([part.row_indices, tf.zeros(more[None], tf.int64)], 0)
    marked = part._replace(row_indices=row_indices, size=tf.size(row_indices, tf.int64))
    return marked, tf.concat([rows, tf.cast(missing, rows.dtype)], 0)


def _encode_ids(parts: Sequence[ShardRows]) -> tf.Tensor:
    """Encode row indices as the ids of a message to one server."""
    return encode_row_indices(
        [part.shard for part in parts], [(part.row_indices, part.size) for part in parts]
    )
