"""Looks up rows of tables on servers, and encodes their gradients, in a worker's steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.worker_variable import WorkerVariable
from tfps.runtime.message.payload import Body
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.worker.look_ups import LookUps
from tfps.runtime.worker.row_gradients import RowValues, build_row_bodies


class TableRows:
    """The look-ups and the pushes of tables in one worker's steps.

    Args:
        servers: the program's functions on each server; the tables are the program's.
        look_ups: the look-ups of the same tables.
    """

    def __init__(self, servers: Sequence[ServerHalf], *, look_ups: LookUps) -> None:
        tables = servers[0].program.schedule.tables
        self._numbers = {id(table): number for number, table in enumerate(tables)}
        self._servers = servers
        self._look_ups = look_ups
        self._gradients: dict[int, RowValues] = {}  # of the latest traced step

    def exclude_tables(self, variables: Sequence[Any]) -> list[Any]:
        """Return the variables that are not tables."""
        return [variable for variable in variables if not self.is_table(variable)]

    def is_table(self, variable: Any) -> bool:
        """Return whether a variable is one of the tables."""
        return id(variable) in self._numbers

    def look_up(self, table: Any, ids: tf.Tensor, *, copy: WorkerVariable) -> tf.Tensor:
        """Look up rows on the servers, one for each id.

        The worker's copy of a table is empty: tapes find the rows' gradient under its handle.
        """
        flat_ids = tf.reshape(ids, [-1])
        looked_up = self._look_ups.look_up(self._numbers[id(table)], flat_ids)
        rows = private.read_differentiably(copy, lambda: looked_up, rows=flat_ids)
        return _reshape_rows(rows, ids, row_shape=table.shape[1:])

    def collect_gradient(self, gradient: Any, variable: Any) -> tf.Tensor:
        """Return a gradient for later processing: dense, or the distinct rows of a table."""
        if not self.is_table(variable):
            return gradient
        if not isinstance(gradient, tf.IndexedSlices):
            dense = tf.convert_to_tensor(gradient)
            gradient = tf.IndexedSlices(dense, tf.range(tf.shape(dense, tf.int64)[0]))
        # Mostly the ids of the last look-up.
        distinct = self._look_ups.get_distinct_rows(self._numbers[id(variable)], gradient.indices)
        self._gradients[id(variable)] = rows = RowValues.from_gradient(gradient, distinct)
        return rows.values

    def set_values(self, variable: Any, values: tf.Tensor) -> None:
        """Replace the values of a table's row gradient, for example after clipping."""
        if id(variable) in self._gradients:
            rows = self._gradients[id(variable)]
            self._gradients[id(variable)] = rows._replace(values=values)

    def encode_rows(self, call_number: int, *, seed: tf.Tensor) -> dict[int, Body]:
        """Encode the row gradients of an optimizer call's tables as bodies, by server.

        Args:
            call_number: the index of the call.
            seed: int64 [2], the seed of codecs.
        """
        call = self._servers[0].program.calls[call_number]
        tables = filter(self.is_table, call.variables)
        return build_row_bodies(
            [self._gradients[id(table)] for table in tables],
            optimizer=call.optimizer,
            wires=[server.wires[call_number] for server in self._servers],
            seed=seed,
        )


def _reshape_rows(rows: tf.Tensor, ids: tf.Tensor, *, row_shape: Sequence[int]) -> tf.Tensor:
    """Reshape rows to the shape of their ids."""
    shape = ids.shape.concatenate(row_shape)
    sizes = [None] * 2 if shape.rank is None else shape.as_list()
    if sizes.count(None) <= 1 and 0 not in sizes:  # one number follows from the others
        return tf.reshape(rows, [-1 if size is None else size for size in sizes])
    return tf.ensure_shape(tf.reshape(rows, tf.concat([tf.shape(ids), row_shape], 0)), shape)
