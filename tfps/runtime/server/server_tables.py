"""Tables of which only rows travel, on one server: rows out, rows of gradients in.

The ids of a message are, for each shard of a table on the server in turn, how many rows it is about
and which ones, as places in the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.shards import row_bytes_of, size_bytes_of
from tfps.consistency.ledger import Entries
from tfps.consistency.server_ledger import ServerLedger
from tfps.runtime.message.wire import CallWire, gradient_name, shards_on
from tfps.transport.packing import unpack

ID_BYTES = tf.int64.size


def places_of(shards: Sequence[Any], ids: tf.Tensor) -> list[tf.Tensor]:
    """The places that a message names in each shard."""
    places, begin = [], tf.constant(0, tf.int64)
    for _ in shards:
        count = ids[begin]
        places.append(ids[begin + 1 : begin + 1 + count])
        begin += 1 + count
    return places


def gradients_of_rows(
    shards: Sequence[Any], ids: tf.Tensor, rows: tf.Tensor
) -> dict[str, tf.IndexedSlices]:
    """Gradients of shards, which are zero where no row came.

    Args:
        shards: of tables.
        ids: of the message.
        rows: uint8, of all shards one after the other.
    """
    gradients, begin = {}, tf.constant(0, tf.int64)
    for shard, places in zip(shards, places_of(shards, ids), strict=True):
        native = shard._value
        size = tf.size(places, tf.int64) * row_bytes_of(native)
        values = as_rows(rows[begin : begin + size], native)
        shape = tf.constant(native.shape.as_list(), tf.int64)
        gradients[gradient_name(shard)] = tf.IndexedSlices(values, places, shape)
        begin += size
    return gradients


def as_rows(data: tf.Tensor, native: Any) -> tf.Tensor:
    """Bytes as rows of a variable."""
    row_shape = list(native.shape[1:])
    if native.dtype.size == 1:
        return tf.reshape(tf.bitcast(data, native.dtype), [-1, *row_shape])
    numbers = tf.bitcast(tf.reshape(data, [-1, native.dtype.size]), native.dtype)
    return tf.reshape(numbers, [-1, *row_shape])


def as_bytes(rows: tf.Tensor) -> tf.Tensor:
    """Rows as bytes."""
    return tf.reshape(tf.bitcast(rows, tf.uint8), [-1])


def unpacked(wire: CallWire, ids: tf.Tensor, payload: tf.Tensor) -> dict[str, Any]:
    """The tensors of a push, by name; of tables the rows of gradients that came."""
    layout = wire.server_request
    if not wire.tables:
        return unpack(layout, payload)
    fixed, rows = payload[: layout.size_bytes], payload[layout.size_bytes :]
    return {**unpack(layout, fixed), **gradients_of_rows(wire.tables, ids, rows)}


def reply_ids(wire: CallWire, ids: tf.Tensor) -> tf.Tensor:
    """A reply to a push has none; those of a request that has none either are at hand."""
    return ids[:0] if wire.tables else ids


def received_bytes(wire: CallWire, ids: tf.Tensor, payload: tf.Tensor) -> Any:
    """How large a push is."""
    if not wire.tables:
        return wire.request.size_bytes
    return tf.size(payload, tf.int64) + ID_BYTES * tf.size(ids, tf.int64)


class LookUp:
    """Traces how a server answers with rows of one table.

    Args:
        shards: of the table, on this server.
        ledger: of the server.
        reply: the header of the answer to a request's, from the ledger.
    """

    def __init__(
        self,
        shards: Sequence[Any],
        *,
        ledger: ServerLedger,
        reply: Callable[[tf.Tensor, Entries], tf.Tensor],
    ) -> None:
        self._shards, self._ledger, self._reply = shards, ledger, reply

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers such a request."""
        with self._ledger.locked():
            entries = self._ledger.entries()
            reply = self._reply(header, entries)
            rows = [
                as_bytes(shard._value.sparse_read(places))
                for shard, places in zip(self._shards, places_of(self._shards, ids), strict=True)
            ]
            found = tf.concat(rows, 0)
            entries.count_traffic(
                received_bytes=ID_BYTES * tf.size(ids, tf.int64),
                sent_bytes=tf.size(found, tf.int64),
            )
            self._ledger.post(entries)
        return [reply, ids[:0], found]


def look_ups(
    tables: Sequence[Any],
    *,
    device: str,
    ledger: ServerLedger,
    reply: Callable[[tf.Tensor, Entries], tf.Tensor],
) -> dict[int, LookUp]:
    """Of each table that a server has a part of, by its number."""
    found = ((number, shards_on([table], device)) for number, table in enumerate(tables))
    return {
        number: LookUp(shards, ledger=ledger, reply=reply) for number, shards in found if shards
    }


def table_bytes(table: Any, *, device: str) -> int:
    """What a server holds of a table."""
    return sum(size_bytes_of(shard._value) for shard in shards_on([table], device))
