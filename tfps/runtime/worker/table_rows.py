"""Tables of which only rows travel, on a worker: rows in, rows of gradients out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from tfps.bridge import tensorflow_private as private
from tfps.bridge.shards import RowsByShard, row_bytes_of, rule_of, shards_of
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.wrapped import bare
from tfps.runtime.message.payload import Body
from tfps.runtime.program.program import Program
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.server_tables import as_bytes, as_rows
from tfps.runtime.worker.exchange import Ask
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.transport.message import Kind


class RowValues(NamedTuple):
    """Some rows of a table, each once.

    Args:
        ids: int64, of the table.
        values: of the rows.
    """

    ids: tf.Tensor
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
        program: whose ``tables`` they are.
        servers: the program's functions on each server.
        ask: asks them, see `Ask`.
    """

    def __init__(self, program: Program, *, servers: Sequence[ServerHalf], ask: Ask) -> None:
        self._tables, self._ask = program.schedule.tables, ask
        self._devices = [server.server.device for server in servers]
        self._gradients: dict[int, RowValues] = {}  # of the step that was traced last

    def number_of(self, variable: Any) -> int | None:
        """Of a table; None for any other variable."""
        return next((k for k, table in enumerate(self._tables) if table is variable), None)

    def others(self, variables: Sequence[Any]) -> list[Any]:
        """Those that are no tables."""
        return [variable for variable in variables if self.number_of(variable) is None]

    def look_up(self, table: Any, ids: tf.Tensor, *, copies: WorkerCopies) -> tf.Tensor | None:
        """Ask the servers for rows, each for those that it has; None for what is no table.

        Args:
            table: of Keras.
            ids: int64, of any shape.
            copies: the worker's; that of a table is empty, and tapes find the rows' gradient under
                its handle.
        """
        number = self.number_of(table)
        if number is None:
            return None
        check = tf.debugging.assert_less(
            ids,
            tf.constant(table.shape[0], tf.int64),
            message=f"ids for {table.path}, which has {table.shape[0]} rows",
        )
        with tf.control_dependencies([check]):
            distinct, positions = tf.unique(tf.reshape(ids, [-1]), out_idx=tf.int64)
        divided = RowsByShard.by(rule_of(table), distinct)
        bodies = {
            p: Body(tf.zeros([0], tf.uint8), _numbered(places))
            for p, places in self._by_server(table, divided.places).items()
        }
        replies = self._ask(Kind.LOOK_UP, bodies, call_number=number)
        payloads = {p: reply.payload for p, reply in replies.items()}
        found = self._rows(table, divided, payloads)
        rows = private.differentiable_read(copies.on(0, table), lambda: found, rows=distinct)
        looked_up = tf.gather(rows, tf.reshape(positions, tf.shape(ids)))
        return tf.ensure_shape(looked_up, ids.shape.concatenate(table.shape[1:]))

    def gradient(self, gradient: Any, variable: Any) -> tf.Tensor:
        """A gradient as it goes on in the step: dense, or of a table the rows that came."""
        if self.number_of(variable) is None:
            return tf.convert_to_tensor(gradient)
        self._gradients[id(variable)] = rows = RowValues.of(gradient)
        return rows.values

    def take_back(self, variable: Any, values: tf.Tensor) -> None:
        """The gradient's rows as they are to be pushed, clipped perhaps."""
        if id(variable) in self._gradients:
            rows = self._gradients[id(variable)]
            self._gradients[id(variable)] = rows._replace(values=values)

    def to_push(self, call: OptimizerCall) -> dict[int, Body]:
        """What lies behind the payload of a push, by server; nothing where it has no table.

        Args:
            call: the optimizer call that the push is for.
        """
        ids: dict[int, list[tf.Tensor]] = {}
        values: dict[int, list[tf.Tensor]] = {}
        skips_together = isinstance(bare(call.optimizer), LossScaleOptimizer)
        for variable in call.variables:
            if self.number_of(variable) is None:
                continue
            rows = self._gradients[id(variable)]
            divided = RowsByShard.by(rule_of(variable), rows.ids)
            each = zip(shards_of(variable), divided.positions, divided.places, strict=True)
            for shard, positions, places in each:
                server = self._devices.index(shard._value.device)
                gathered = tf.cast(tf.gather(rows.values, positions), shard._value.dtype)
                if skips_together:
                    places, gathered = _finite_or_told(places, gathered, of_all=rows.values)
                ids.setdefault(server, []).append(places)
                values.setdefault(server, []).append(as_bytes(gathered))
        return {p: Body(tf.concat(values[p], 0), _numbered(ids[p])) for p in ids}

    def _by_server(self, table: Any, places: Sequence[tf.Tensor]) -> dict[int, list[tf.Tensor]]:
        by_server: dict[int, list[tf.Tensor]] = {}
        for shard, each in zip(shards_of(table), places, strict=True):
            by_server.setdefault(self._devices.index(shard._value.device), []).append(each)
        return by_server

    def _rows(
        self, table: Any, divided: RowsByShard, payloads: Mapping[int, tf.Tensor]
    ) -> tf.Tensor:
        """In the order of the ids."""
        begins = dict.fromkeys(payloads, tf.constant(0, tf.int64))
        parts = []
        for shard, places in zip(shards_of(table), divided.places, strict=True):
            native = shard._value
            server = self._devices.index(native.device)
            size = tf.size(places, tf.int64) * row_bytes_of(native)
            begin = begins[server]
            begins[server] = begin + size
            parts.append(as_rows(_bytes_at(payloads[server], begin, size), native))
        return parts[0] if len(parts) == 1 else tf.dynamic_stitch(divided.positions, parts)


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
