"""Look-ups of a step: those that follow from its batch are one request to each server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.id_check import AskedIds, check_ids
from tfps.bridge.movable_operation import StandIn, is_movable, let_move, runs_after
from tfps.bridge.shards import row_bytes_of, shards_of
from tfps.bridge.traced_graph import is_part
from tfps.runtime.message.payload import Body
from tfps.runtime.message.places import encode_places
from tfps.runtime.program.schedule import ALL_TABLES, alone
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.server_tables import as_rows
from tfps.runtime.worker.levels import Levels
from tfps.runtime.worker.shard_rows import ShardRows, rows_by_shard
from tfps.transport.carrier import Message
from tfps.transport.message import Kind


class LookUp(NamedTuple):
    """Rows of a table that a layer asks for."""

    number: int  # of the table
    ids: tf.Tensor  # an int64 vector


class DistinctRows(NamedTuple):
    """Rows of a table that were asked for, each once."""

    asked: tf.Tensor  # the ids as they were given
    ids: tf.Tensor  # each once
    positions: tf.Tensor  # of the given ones among these
    parts: Sequence[ShardRows]  # by shard


class Pending(NamedTuple):
    """One that is asked for later, together with others."""

    look_up: LookUp
    level: int  # of its ids
    rows: StandIn


class LookUps:
    """What steps of one worker ask for of tables.

    A look-up in the step's own graph is put off if its ids could be known at the step's begin: the
    layer goes on with a stand-in for the rows. Before the optimizer is called, or when the step
    ends, all of them are one request to each server. Where ids follow from rows that are looked up,
    that takes one more. What stands in a branch or a loop, or follows from a variable, is asked for
    where it stands.

    Args:
        servers: the functions on each server of a program, whose ``tables`` they are.
        ask: sends look-ups, by server.
    """

    def __init__(
        self, servers: Sequence[ServerHalf], *, ask: Callable[..., Mapping[int, Message]]
    ) -> None:
        self._servers, self._ask = servers, ask
        self._tables = servers[0].program.schedule.tables
        self._devices = [server.server.device for server in servers]
        self.begin()

    def begin(self, *, in_function: bool = False, after: Sequence[tf.Tensor] = ()) -> None:
        """A step begins, in the graph that is traced now.

        Args:
            in_function: the step is one call of a function, which has a graph of its own.
            after: known when the rows are those that the step is to be computed from.
        """
        self.asked_ahead: list[Any] = []  # what brings rows that nothing of the step is before
        self._around: Any = private.current_graph()
        self._in_function = in_function
        self._start(None if in_function else self._around, after=after)

    def _start(self, graph: Any, *, after: Sequence[tf.Tensor] = ()) -> None:
        """Nothing is put off in the step's own graph."""
        self._graph = graph
        self._levels = Levels[Any](inputs=runs_after, is_movable=_moves)
        self._pending: list[Pending] = []
        self._distinct: dict[int, DistinctRows] = {}  # by the number of the table
        self._after = after
        self._keeps_order = False

    def _enters(self, graph: Any) -> bool:
        """Whether a graph is the step's own; a function that is traced anew has another one."""
        if graph is self._graph:
            return True
        if not self._in_function or is_part(graph) or graph.outer_graph is not self._around:
            return False
        self._start(graph)
        return True

    def rows(self, number: int, ids: tf.Tensor) -> tf.Tensor:
        """The rows of a table, by its number, for an int64 vector of ids."""
        look_up, level = LookUp(number, ids), None
        if self._enters(private.current_graph()) and not self._keeps_order:
            level = self._levels.of(ids.op)
        if level is None:
            return self.rows_here(number, ids)
        native = shards_of(self._tables[number])[0]._value
        rows = StandIn([ids.shape[0], *native.shape[1:]], native.dtype)
        self._levels.answered(rows.tensor.op, level=level)
        self._pending.append(Pending(look_up, level, rows))
        return rows.tensor

    def rows_here(self, number: int, ids: tf.Tensor) -> tf.Tensor:
        """The same, asked for where this is called."""
        call = alone(number)
        is_offered = any(server.offers(Kind.LOOK_UP, call) for server in self._servers)
        look_ups = [LookUp(number, ids)]
        with tf.device(None):  # not the device that asks: it may be a GPU
            (found,) = self._found(look_ups, call_number=call if is_offered else ALL_TABLES)
        return found

    def distinct(self, number: int, ids: tf.Tensor) -> DistinctRows | None:
        """What a table was asked for, if that was last done by these very ids, else None."""
        known = self._distinct.get(number)
        return known if known is not None and known.asked is ids else None

    def graph_ends(self, graph: Any) -> None:
        """All is traced of a graph."""
        if graph is self._graph:
            self.ask_together()

    def ask_together(self) -> None:
        """Ask for all that was put off."""
        pending, self._pending = self._pending, []
        for level in sorted({each.level for each in pending}):
            those = [each for each in pending if each.level == level]
            with self._graph.as_default(), tf.control_dependencies(None):
                found = self._found([each.look_up for each in those], is_ahead=True)
            for each, rows in zip(those, found, strict=True):
                each.rows.become(rows)

    def go_on(self, *, after: Sequence[tf.Tensor]) -> None:
        """An optimizer was called: what is asked for from now on are rows that it has changed.

        Args:
            after: of the servers' answers to it.
        """
        self._after = after
        # What a branch or a loop has changed, nothing outside of it can wait for.
        self._keeps_order = not self._enters(private.current_graph())

    def _found(
        self,
        look_ups: Sequence[LookUp],
        *,
        call_number: int = ALL_TABLES,
        is_ahead: bool = False,
    ) -> list[tf.Tensor]:
        """Ask for the rows of look-ups, for each row of a table once.

        Args:
            look_ups: which ones.
            call_number: of the servers' function.
            is_ahead: whether nothing but their ids is to be waited for, and the optimizer calls
                before them.
        """
        by_table: defaultdict[int, list[int]] = defaultdict(list)
        for place, look_up in enumerate(look_ups):
            by_table[look_up.number].append(place)
        numbers = sorted(by_table)
        ids = {n: _end_to_end([look_ups[place].ids for place in by_table[n]]) for n in numbers}
        distinct = {n: self._each_once(n, ids[n]) for n in numbers}
        self._distinct.update(distinct)
        parts = {n: distinct[n].parts for n in numbers}
        asked: defaultdict[int, list[ShardRows]] = defaultdict(list)
        for n in numbers:
            for part in parts[n]:
                asked[part.server].append(part)
        check = check_ids(AskedIds.of(ids[n], self._tables[n]) for n in numbers)
        needs = [check, *(self._after if is_ahead else ())]
        replies = self._ask(
            self._bodies(asked, call_number=call_number, after=needs),
            call_number=call_number,
            is_ahead=is_ahead,
        )
        if is_ahead:
            operations = [reply.header.op for reply in replies.values()]
            self.asked_ahead += operations
            for operation in (check, *operations):
                private.run_independently(operation)
        brought = {
            id(part.shard): rows
            for server, each in asked.items()
            for part, rows in zip(each, _rows(each, replies[server].payload), strict=True)
        }
        found: dict[int, tf.Tensor] = {}
        for n in numbers:
            rows = tf.gather(_stitched(parts[n], brought), distinct[n].positions)
            sizes = [tf.size(look_ups[place].ids) for place in by_table[n]]
            each = [rows] if len(sizes) == 1 else tf.split(rows, sizes)
            found.update(zip(by_table[n], each, strict=True))
        return [found[place] for place in range(len(look_ups))]

    def _each_once(self, number: int, asked: tf.Tensor) -> DistinctRows:
        ids, positions = tf.unique(asked)
        parts = rows_by_shard(self._tables[number], ids, devices=self._devices)
        return DistinctRows(asked, ids, positions, parts)

    def _bodies(
        self, asked: Mapping[int, Sequence[ShardRows]], *, call_number: int, after: Sequence[Any]
    ) -> dict[int, Body]:
        """The requests, by server."""
        bodies = {}
        for server, parts in asked.items():
            places = {id(part.shard): part.places for part in parts}
            shards = self._servers[server].look_up_shards(call_number)
            ids = encode_places(shards, [places.get(id(shard)) for shard in shards])
            with tf.control_dependencies(list(after)):
                bodies[server] = Body(tf.zeros([0], tf.uint8), tf.identity(ids))
        return bodies


def _moves(operation: Any) -> bool:
    if not is_movable(operation):
        return False
    let_move(operation)
    return True


def _end_to_end(vectors: Sequence[tf.Tensor]) -> tf.Tensor:
    return vectors[0] if len(vectors) == 1 else tf.concat(vectors, 0)


def _stitched(parts: Sequence[ShardRows], brought: Mapping[int, tf.Tensor]) -> tf.Tensor:
    """The rows of a table in the order of their ids."""
    rows = [brought[id(part.shard)] for part in parts]
    positions = [part.positions for part in parts]
    return rows[0] if len(rows) == 1 else tf.dynamic_stitch(positions, rows)


def _rows(parts: Sequence[ShardRows], payload: tf.Tensor) -> list[tf.Tensor]:
    """The rows that a server has replied with, of each shard.

    Zeros where a lost server has answered nothing: that step counts nowhere.
    """
    row_bytes = [row_bytes_of(part.native) for part in parts]
    sizes = tf.stack([tf.size(part.places, tf.int64) for part in parts]) * row_bytes
    whole = tf.reduce_sum(sizes)
    payload = tf.cond(
        tf.equal(whole, tf.size(payload, tf.int64)),
        lambda: payload,
        lambda: tf.zeros(whole[None], tf.uint8),
    )
    data = tf.split(payload, sizes, num=len(parts))
    return [as_rows(each, part.native) for each, part in zip(data, parts, strict=True)]
