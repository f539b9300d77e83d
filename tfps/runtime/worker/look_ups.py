"""Sends the look-ups of a step, together in one request to each server where possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.id_check import RequestedIds, check_ids
from tfps.bridge.variables.shards import get_shards
from tfps.optimizers.gathered_rows import concat_rows
from tfps.runtime.message.payload import Body
from tfps.runtime.message.row_format import RowFormat, decode_all_rows
from tfps.runtime.message.row_indices import encode_row_indices
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.worker.graph_look_ups import GraphLookUps, LookUp
from tfps.runtime.worker.shard_rows import DistinctRows, ShardRows
from tfps.transport.carrier import Message


class PushOrder(Protocol):
    """Orders look-ups among the pushes of a step, across graphs."""

    def get_answered_pushes(self) -> Sequence[tf.Tensor]:
        """Return tensors of the current graph that are ready when earlier pushes were answered."""

    def delay_pushes_until(self, operations: Sequence[Any]) -> None:
        """Let later pushes wait for operations of the current graph."""


class NoPushes:
    """An order without pushes: rows are only looked up."""

    def get_answered_pushes(self) -> Sequence[tf.Tensor]:
        return ()

    def delay_pushes_until(self, operations: Sequence[Any]) -> None:
        """Do nothing: there is no push that could wait."""


class LookUps:
    """The look-ups of one worker's steps.

    A look-up is delayed if its ids depend only on the inputs of its graph: the layer continues with
    a stand-in for the rows. Before an optimizer is called, or when the graph ends, all delayed
    look-ups are one request to each server. Ids that depend on rows of other look-ups take one
    more. The body of a loop, a branch, and a function inside the step have graphs of their own, so
    look-ups in one of them are sent together there. A look-up that depends on a variable which the
    step has changed is sent where it stands.

    Args:
        servers: the program's functions on each server; the tables are the program's.
        send: sends look-ups, by server.
        pushes: the pushes of the same steps.
    """

    def __init__(
        self,
        servers: Sequence[ServerHalf],
        *,
        send: Callable[..., Mapping[int, Message]],
        pushes: PushOrder,
    ) -> None:
        self._servers, self._send_requests, self._pushes = servers, send, pushes
        self._tables = servers[0].program.schedule.tables
        self._devices = [server.server.device for server in servers]
        self.begin()

    def begin(self, *, in_function: bool = False, after: Sequence[tf.Tensor] = ()) -> None:
        """Begin a step, in the current graph.

        Args:
            in_function: whether the step is one call of a function, which has a graph of its own.
            after: tensors that are ready when the rows have the values of this step.
        """
        self._step_graph: Any = private.current_graph()
        self._in_function, self._after, self._has_pushed = in_function, after, False
        self._distinct: dict[int, DistinctRows] = {}  # by the index of the table
        self._graphs: dict[Any, GraphLookUps] = {}
        if not in_function:
            self._get_graph_look_ups(self._step_graph)

    def _get_graph_look_ups(self, graph: Any) -> GraphLookUps | None:
        """Return the delayed look-ups of the current graph; None if its end is not reported."""
        known = self._graphs.get(graph)
        if known is None and private.reports_completion(graph):
            after = (
                self._pushes.get_answered_pushes() if self._follows_pushes(graph) else self._after
            )
            known = self._graphs[graph] = GraphLookUps(graph, after=after)
        elif known is not None and known.is_outdated:
            known.continue_after(after=self._pushes.get_answered_pushes())
        return known

    def _follows_pushes(self, graph: Any) -> bool:
        """Return whether pushes may come before the inputs of a graph."""
        step = graph.outer_graph if self._in_function else graph
        return self._has_pushed or step is not self._step_graph

    def look_up(self, number: int, ids: tf.Tensor) -> tf.Tensor:
        """Return the rows of a table, by its index, for an int64 vector of ids."""
        look_ups, rows = self._get_graph_look_ups(private.current_graph()), None
        if look_ups is not None:
            native = get_shards(self._tables[number])[0]._value
            rows = look_ups.delay(LookUp(number, ids), shard=native)
        return self.look_up_now(number, ids) if rows is None else rows

    def look_up_now(self, number: int, ids: tf.Tensor) -> tf.Tensor:
        """Return the rows of a look-up, sent now instead of together with later look-ups."""
        (rows,) = self._send([LookUp(number, ids)])
        return rows

    def get_distinct_rows(self, number: int, ids: tf.Tensor) -> DistinctRows:
        """Return the distinct rows for some ids; reuse those of the last look-up if possible."""
        known = self._distinct.get(number)
        if known is not None and known.requested_ids is ids:
            return known
        (found,) = self._find_distinct([number], [tf.cast(ids, tf.int64)])
        return found

    def on_graph_complete(self, graph: Any) -> None:
        """Send the look-ups of a graph whose trace has ended."""
        if graph in self._graphs:
            self._send_all(self._graphs[graph])

    def send_delayed(self) -> None:
        """Send all delayed look-ups, before an optimizer is called or when the step ends."""
        for look_ups in self._graphs.values():
            self._send_all(look_ups)

    def _send_all(self, look_ups: GraphLookUps) -> None:
        for group in look_ups.take_by_level():
            with look_ups.graph.as_default(), tf.control_dependencies(None):
                all_rows = self._send([each.look_up for each in group], early_after=look_ups.after)
            for each, rows in zip(group, all_rows, strict=True):
                each.rows.resolve(rows)

    def continue_after(self, *, after: Sequence[tf.Tensor]) -> None:
        """Let later look-ups return rows that an optimizer call has changed.

        Args:
            after: tensors of the servers' replies to it.
        """
        here, self._has_pushed = private.current_graph(), True
        for graph, look_ups in self._graphs.items():
            if graph is here:
                look_ups.continue_after(after=after)
            else:  # look-ups of another graph cannot wait for these tensors
                look_ups.is_outdated = True

    def _send(
        self, look_ups: Sequence[LookUp], *, early_after: Sequence[tf.Tensor] | None = None
    ) -> list[tf.Tensor]:
        """Send look-ups, with each row of a table once, and return the rows of each.

        Args:
            look_ups: the look-ups.
            early_after: the only tensors to wait for, beside the ids; None: wait for all that
                stands before in the graph.
        """
        with tf.device(None):  # not the current device: it may be a GPU
            return self._send_on_any_device(look_ups, early_after=early_after)

    def _send_on_any_device(
        self, look_ups: Sequence[LookUp], *, early_after: Sequence[tf.Tensor] | None
    ) -> list[tf.Tensor]:
        is_early = early_after is not None
        by_table: defaultdict[int, list[int]] = defaultdict(list)
        for place, look_up in enumerate(look_ups):
            by_table[look_up.number].append(place)
        numbers = sorted(by_table)
        ids = {n: concat_rows([look_ups[place].ids for place in by_table[n]]) for n in numbers}
        found = self._find_distinct(numbers, [ids[n] for n in numbers])
        distinct = dict(zip(numbers, found, strict=True))
        self._distinct.update(distinct)
        parts = {n: distinct[n].parts for n in numbers}
        asked: defaultdict[int, list[ShardRows]] = defaultdict(list)
        for n in numbers:
            for part in parts[n]:
                asked[part.server].append(part)
        checks = [check_ids(RequestedIds.from_ids(ids[n], self._tables[n]) for n in numbers)]
        checks += self._make_limit_checks(asked, tables=[self._tables[n].path for n in numbers])
        needs = [*checks, *(early_after or ())]
        replies = self._send_requests(self._encode_bodies(asked, after=needs), is_early=is_early)
        operations = [reply.header.op for reply in replies.values()]
        if is_early:
            for operation in (*checks, *operations):
                private.run_independently(operation)
        self._pushes.delay_pushes_until(operations)
        brought = {
            id(part.shard): rows
            for server, each in asked.items()
            for part, rows in zip(
                each, self._decode_rows(server, each, replies[server]), strict=True
            )
        }
        rows_by_look_up: dict[int, tf.Tensor] = {}
        for n in numbers:
            rows = concat_rows([brought[id(part.shard)] for part in parts[n]])
            rows = tf.gather(rows, distinct[n].positions)
            sizes = [tf.size(look_ups[place].ids) for place in by_table[n]]
            each = [rows] if len(sizes) == 1 else tf.split(rows, sizes)
            rows_by_look_up.update(zip(by_table[n], each, strict=True))
        return [rows_by_look_up[place] for place in range(len(look_ups))]

    def _find_distinct(
        self, numbers: Sequence[int], ids: Sequence[tf.Tensor]
    ) -> list[DistinctRows]:
        tables = [self._tables[number] for number in numbers]
        return DistinctRows.from_ids(tables, ids, devices=self._devices)

    def _encode_bodies(
        self, asked: Mapping[int, Sequence[ShardRows]], *, after: Sequence[Any]
    ) -> dict[int, Body]:
        """Encode the row indices as bodies of requests, by server."""
        bodies = {}
        for server, parts in asked.items():
            row_indices = {id(part.shard): (part.row_indices, part.size) for part in parts}
            shards = self._servers[server].look_up_shards()
            ids = encode_row_indices(shards, [row_indices.get(id(shard)) for shard in shards])
            with tf.control_dependencies(list(after)):
                bodies[server] = Body(tf.zeros([0], tf.uint8), tf.identity(ids))
        return bodies

    def _make_limit_checks(
        self, asked: Mapping[int, Sequence[ShardRows]], *, tables: Sequence[str]
    ) -> list[tf.Operation]:
        """Return operations that refuse more rows than a message can hold; none if all rows fit."""
        limits = {server: self._servers[server].get_max_row_bytes() for server in asked}
        return [
            _refuse_too_many(
                parts, self._get_formats(server, parts), tables=tables, longest_bytes=longest
            )
            for server, parts in asked.items()
            if (longest := limits[server]) is not None
        ]

    def _get_formats(self, server: int, parts: Sequence[ShardRows]) -> list[RowFormat]:
        """Return the formats in which rows of shards travel."""
        half = self._servers[server]
        known = dict(zip(map(id, half.look_up_shards()), half.look_up_formats(), strict=True))
        return [known[id(part.shard)] for part in parts]

    def _decode_rows(
        self, server: int, parts: Sequence[ShardRows], reply: Message
    ) -> list[tf.Tensor]:
        """Decode the rows in a server's reply, for each shard.

        Zeros if a lost server has not replied: that step does not count.
        """
        formats = self._get_formats(server, parts)
        counts = [part.size for part in parts]
        whole = _count_row_bytes(parts, formats)
        payload = tf.cond(
            tf.equal(whole, tf.size(reply.payload, tf.int64)),
            lambda: reply.payload,
            lambda: tf.zeros(whole[None], tf.uint8),
        )
        return decode_all_rows(payload, formats, counts)


def _count_row_bytes(parts: Sequence[ShardRows], formats: Sequence[RowFormat]) -> tf.Tensor:
    """Return the number of bytes of the encoded rows of some shards."""
    counts = tf.stack([part.size for part in parts])
    return tf.reduce_sum(counts * [each.size_bytes for each in formats])


def _refuse_too_many(
    parts: Sequence[ShardRows],
    formats: Sequence[RowFormat],
    *,
    tables: Sequence[str],
    longest_bytes: int,
) -> tf.Operation:
    """Return an operation that fails if the rows from one server are too large for a message.

    Args:
        parts: the rows, by shard, all of one server.
        formats: the formats in which rows of these shards travel.
        tables: the names of the tables.
        longest_bytes: the limit of a message.
    """
    server, asked = parts[0].server, _count_row_bytes(parts, formats)
    return tf.raw_ops.Assert(
        condition=asked <= longest_bytes,
        data=[
            f"rows of {', '.join(tables)}: received ids of",
            asked,
            # TensorFlow shows quotation marks with a backslash.
            f"bytes on ps {server}, expected at most {longest_bytes}, the limit of a message over "
            "grpc. Use the transport direct (start all tasks with tfps run or tfps serve), "
            "smaller batches, or a partitioner and more servers",
        ],
        name="check_rows",
    )
