"""Tables of which only rows travel, on a worker: rows in, rows of gradients out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from tfps.bridge import tensorflow_private as private
from tfps.bridge.worker_variable import WorkerVariable
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.wrapped import bare
from tfps.runtime.message.payload import Body
from tfps.runtime.message.places import encode_places
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.server_tables import as_bytes
from tfps.runtime.worker.look_ups import LookUps
from tfps.runtime.worker.shard_rows import ShardRows, rows_by_shard


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


class TableRows:
    """What steps of one worker ask for of tables, and what they push.

    Args:
        servers: the functions on each server of a program, whose ``tables`` they are.
        look_ups: of the same.
    """

    def __init__(self, servers: Sequence[ServerHalf], *, look_ups: LookUps) -> None:
        tables = servers[0].program.schedule.tables
        self._numbers = {id(table): number for number, table in enumerate(tables)}
        self._devices = [server.server.device for server in servers]
        self._look_ups = look_ups
        self._gradients: dict[int, RowValues] = {}  # of the step that was traced last

    def others(self, variables: Sequence[Any]) -> list[Any]:
        """Those that are no tables."""
        return [variable for variable in variables if not self.has(variable)]

    def has(self, variable: Any) -> bool:
        """Whether it is one of the tables."""
        return id(variable) in self._numbers

    def look_up(self, table: Any, ids: tf.Tensor, *, copy: WorkerVariable) -> tf.Tensor:
        """Rows that the servers have, one for each id.

        The worker's copy of a table is empty: tapes find the rows' gradient under its handle.
        """
        wanted = tf.reshape(ids, [-1])
        found = self._look_ups.rows(self._numbers[id(table)], wanted)
        rows = private.differentiable_read(copy, lambda: found, rows=wanted)
        shape = tf.concat([tf.shape(ids), table.shape[1:]], 0)
        return tf.ensure_shape(tf.reshape(rows, shape), ids.shape.concatenate(table.shape[1:]))

    def gradient(self, gradient: Any, variable: Any) -> tf.Tensor:
        """A gradient as it goes on in the step: dense, or of a table the rows that came."""
        if not self.has(variable):
            return gradient
        self._gradients[id(variable)] = rows = RowValues.of(gradient)
        return rows.values

    def take_back(self, variable: Any, values: tf.Tensor) -> None:
        """The gradient's rows as they are to be pushed, clipped perhaps."""
        if id(variable) in self._gradients:
            rows = self._gradients[id(variable)]
            self._gradients[id(variable)] = rows._replace(values=values)

    def to_push(self, call: OptimizerCall) -> dict[int, Body]:
        """What lies behind the payload of an optimizer call's push, by server; of tables only."""
        pushed: dict[int, list[ShardRows]] = {}
        values: dict[int, list[tf.Tensor]] = {}
        skips_together = isinstance(bare(call.optimizer), LossScaleOptimizer)
        for table in filter(self.has, call.variables):
            rows = self._gradients[id(table)]
            for part in rows_by_shard(table, rows.ids, devices=self._devices):
                places = part.places
                gathered = tf.cast(tf.gather(rows.values, part.positions), part.native.dtype)
                if skips_together:
                    places, gathered = _finite_or_told(places, gathered, of_all=rows.values)
                pushed.setdefault(part.server, []).append(part._replace(places=places))
                values.setdefault(part.server, []).append(as_bytes(gathered))
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
