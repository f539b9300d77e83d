"""Tables of which only rows travel, on a worker: rows in, rows of gradients out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from tfps.bridge import tensorflow_private as private
from tfps.bridge.shards import RowsByShard, row_bytes_of, rule_of, shards_of
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.wrapped import bare
from tfps.runtime.message.payload import Body
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.server_tables import as_bytes, as_rows
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.transport.carrier import Message


class RowValues(NamedTuple):
    """Some rows of a table, each once."""

    ids: tf.Tensor  # int64, of the table
    values: tf.Tensor

    @classmethod
    def of(cls, gradient: Any) -> RowValues:
        """Those of a table's gradient, summed up where an id comes more than once."""
        if not isinstance(gradient, tf.IndexedSlices):
            dense = tf.convert_to_tensor(gradient)
            return cls(tf.range(tf.shape(dense, tf.int64)[0]), dense)
        ids, positions = tf.unique(tf.cast(gradient.indices, tf.int64), out_idx=tf.int64)
        count = tf.size(ids, tf.int64)
        return cls(ids, tf.math.unsorted_segment_sum(gradient.values, positions, count))


class ShardRows(NamedTuple):
    """Some rows of a table, as far as they lie in one shard."""

    server: int
    native: Any  # the shard's variable
    positions: tf.Tensor  # among the rows
    places: tf.Tensor  # in the shard


class TableRows:
    """What steps of one worker ask for of tables, and what they push.

    Args:
        servers: the functions on each server of a program, whose ``tables`` they are.
        ask: sends look-ups, by server, for the table of a ``call_number``.
    """

    def __init__(
        self, servers: Sequence[ServerHalf], *, ask: Callable[..., Mapping[int, Message]]
    ) -> None:
        tables = servers[0].program.schedule.tables
        self._numbers = {id(table): number for number, table in enumerate(tables)}
        self._devices, self._ask = [server.server.device for server in servers], ask
        self._gradients: dict[int, RowValues] = {}  # of the step that was traced last

    def others(self, variables: Sequence[Any]) -> list[Any]:
        """Those that are no tables."""
        return [variable for variable in variables if id(variable) not in self._numbers]

    def look_up(self, table: Any, ids: tf.Tensor, *, copies: WorkerCopies) -> tf.Tensor | None:
        """Ask the servers for rows, each for those that it has; None for what is no table.

        The worker's copy of a table is empty: tapes find the rows' gradient under its handle.
        """
        if id(table) not in self._numbers:
            return None
        check = tf.debugging.assert_less(
            ids,
            tf.constant(table.shape[0], tf.int64),
            message=f"ids for {table.path}, which has {table.shape[0]} rows",
        )
        with tf.control_dependencies([check]):
            distinct, positions = tf.unique(tf.reshape(ids, [-1]), out_idx=tf.int64)
        shards = self._by_shard(table, distinct)
        places: dict[int, list[tf.Tensor]] = {}
        for shard in shards:
            places.setdefault(shard.server, []).append(shard.places)
        bodies = {p: Body(tf.zeros([0], tf.uint8), _numbered(each)) for p, each in places.items()}
        found = _rows(shards, self._ask(bodies, call_number=self._numbers[id(table)]))
        rows = private.differentiable_read(copies.on(0, table), lambda: found, rows=distinct)
        looked_up = tf.gather(rows, tf.reshape(positions, tf.shape(ids)))
        return tf.ensure_shape(looked_up, ids.shape.concatenate(table.shape[1:]))

    def gradient(self, gradient: Any, variable: Any) -> tf.Tensor:
        """A gradient as it goes on in the step: dense, or of a table the rows that came."""
        if id(variable) not in self._numbers:
            return tf.convert_to_tensor(gradient)
        self._gradients[id(variable)] = rows = RowValues.of(gradient)
        return rows.values

    def take_back(self, variable: Any, values: tf.Tensor) -> None:
        """The gradient's rows as they are to be pushed, clipped perhaps."""
        if id(variable) in self._gradients:
            rows = self._gradients[id(variable)]
            self._gradients[id(variable)] = rows._replace(values=values)

    def to_push(self, call: OptimizerCall) -> dict[int, Body]:
        """What lies behind the payload of an optimizer call's push, by server; of tables only."""
        ids: dict[int, list[tf.Tensor]] = {}
        values: dict[int, list[tf.Tensor]] = {}
        skips_together = isinstance(bare(call.optimizer), LossScaleOptimizer)
        for table in (v for v in call.variables if id(v) in self._numbers):
            rows = self._gradients[id(table)]
            for server, native, positions, places in self._by_shard(table, rows.ids):
                gathered = tf.cast(tf.gather(rows.values, positions), native.dtype)
                if skips_together:
                    places, gathered = _finite_or_told(places, gathered, of_all=rows.values)
                ids.setdefault(server, []).append(places)
                values.setdefault(server, []).append(as_bytes(gathered))
        return {p: Body(tf.concat(values[p], 0), _numbered(ids[p])) for p in ids}

    def _by_shard(self, table: Any, ids: tf.Tensor) -> list[ShardRows]:
        natives = [shard._value for shard in shards_of(table)]
        servers = [self._devices.index(native.device) for native in natives]
        divided = RowsByShard.by(rule_of(table), ids)
        return list(map(ShardRows, servers, natives, divided.positions, divided.places))


def _rows(shards: Sequence[ShardRows], replies: Mapping[int, Message]) -> tf.Tensor:
    """The rows that servers have replied with, in the order of the ids."""
    begins = dict.fromkeys(replies, tf.constant(0, tf.int64))
    parts = []
    for server, native, _, places in shards:
        begin, size = begins[server], tf.size(places, tf.int64) * row_bytes_of(native)
        begins[server] = begin + size
        parts.append(as_rows(_bytes_at(replies[server].payload, begin, size), native))
    positions = [shard.positions for shard in shards]
    return parts[0] if len(parts) == 1 else tf.dynamic_stitch(positions, parts)


def _bytes_at(payload: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Some bytes; zeros where a lost server has answered nothing: that step counts nowhere."""
    return tf.cond(
        begin + size <= tf.size(payload, tf.int64),
        lambda: payload[begin : begin + size],
        lambda: tf.zeros(size[None], tf.uint8),
    )


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


def _numbered(places: Sequence[tf.Tensor]) -> tf.Tensor:
    """The ids of a message: before the places in each shard, how many there are."""
    numbered = [part for each in places for part in (tf.size(each, tf.int64)[None], each)]
    return tf.concat(numbered, 0)
