"""Rows of a table's gradient, and the messages that bring them to servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from tfps.optimizers.wrapped import bare
from tfps.runtime.message.payload import Body
from tfps.runtime.message.places import encode_places
from tfps.runtime.message.wire import CallWire
from tfps.runtime.worker.look_ups import DistinctRows
from tfps.runtime.worker.shard_rows import ShardRows, rows_by_shard


class RowValues(NamedTuple):
    """Some rows of a table, each once."""

    ids: tf.Tensor  # int64, of the table
    values: tf.Tensor
    parts: Sequence[ShardRows] | None = None  # by shard, where that is known already

    @classmethod
    def of(cls, gradient: Any, distinct: DistinctRows | None = None) -> RowValues:
        """Those of a table's gradient, summed up where an id comes more than once.

        Args:
            gradient: of the table.
            distinct: of its ids, where they are those of a look-up.
        """
        if not isinstance(gradient, tf.IndexedSlices):
            dense = tf.convert_to_tensor(gradient)
            return cls(tf.range(tf.shape(dense, tf.int64)[0]), dense)
        if distinct is None:
            ids, positions = tf.unique(tf.cast(gradient.indices, tf.int64))
            parts = None
        else:
            _, ids, positions, parts = distinct
        values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(ids))
        return cls(ids, values, parts)


def row_bodies(
    gradients: Iterable[tuple[Any, RowValues]],
    *,
    optimizer: Any,
    devices: Sequence[str],
    wires: Sequence[CallWire],
    seed: tf.Tensor | None = None,
) -> dict[int, Body]:
    """What lies behind the payload of an optimizer call's push, by server; of tables only.

    Args:
        gradients: of each of the call's tables, in its order.
        optimizer: of the call.
        devices: of the servers, in their order.
        wires: of the call, likewise.
        seed: int64 [2], which codecs draw from; None: there are none.
    """
    formats = {
        id(shard): each
        for wire in wires
        for shard, each in zip(wire.tables, wire.row_formats, strict=True)
    }
    pushed: dict[int, list[ShardRows]] = {}
    values: dict[int, list[tf.Tensor]] = {}
    skips_together = isinstance(bare(optimizer), LossScaleOptimizer)
    for table, rows in gradients:
        for part in rows.parts or rows_by_shard(table, rows.ids, devices=devices):
            places = part.places
            gathered = tf.cast(tf.gather(rows.values, part.positions), part.native.dtype)
            if skips_together:
                places, gathered = _finite_or_told(places, gathered, of_all=rows.values)
            pushed.setdefault(part.server, []).append(part._replace(places=places))
            data = formats[id(part.shard)].encode(gathered, seed=seed)
            values.setdefault(part.server, []).append(data)
    return {p: Body(tf.concat(values[p], 0), _ids(pushed[p])) for p in pushed}


def _finite_or_told(
    places: tf.Tensor, rows: tf.Tensor, *, of_all: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """A row that is not finite for who gets none, so that all servers skip such a step."""
    is_finite = tf.reduce_all(tf.math.is_finite(of_all))
    more = tf.cast(tf.logical_not(is_finite) & tf.equal(tf.size(places), 0), tf.int32)
    missing = tf.fill(tf.concat([more[None], tf.shape(rows)[1:]], 0), float("nan"))
    return (
        tf.concat([places, tf.zeros(more[None], tf.int64)], 0),
        tf.concat([rows, tf.cast(missing, rows.dtype)], 0),
    )


def _ids(parts: Sequence[ShardRows]) -> tf.Tensor:
    """The ids of a message to one server."""
    return encode_places([part.shard for part in parts], [part.places for part in parts])
