"""Tables of which only rows travel, on one server: rows out, rows of gradients in.

The ids of a message are, for each piece of a table on the server in turn, how many rows it is about
and which ones, as places in the piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import Status
from tfps.runtime.answers import Answers
from tfps.runtime.server import Server
from tfps.runtime.wire import gradient_name
from tfps.transport.message import Request

ID_BYTES = tf.int64.size


def places_of(pieces: Sequence[Any], ids: tf.Tensor) -> list[tf.Tensor]:
    """The places that a message names in each piece."""
    places, begin = [], tf.constant(0, tf.int64)
    for _ in pieces:
        count = ids[begin]
        places.append(ids[begin + 1 : begin + 1 + count])
        begin += 1 + count
    return places


def gradients_of_rows(
    pieces: Sequence[Any], ids: tf.Tensor, rows: tf.Tensor
) -> dict[str, tf.IndexedSlices]:
    """Gradients of pieces, which are zero where no row came.

    Args:
        pieces: of tables.
        ids: of the message.
        rows: uint8, of all pieces one after the other.
    """
    gradients, begin = {}, tf.constant(0, tf.int64)
    for piece, places in zip(pieces, places_of(pieces, ids), strict=True):
        native = piece._value
        size = tf.size(places, tf.int64) * row_bytes_of(native)
        values = as_rows(rows[begin : begin + size], native)
        shape = tf.constant(native.shape.as_list(), tf.int64)
        gradients[gradient_name(piece)] = tf.IndexedSlices(values, places, shape)
        begin += size
    return gradients


def size_bytes_of(native: Any) -> int:
    """The size of a variable."""
    return int(native.shape.num_elements() * native.dtype.size)


def row_bytes_of(native: Any) -> int:
    """The size of a row of a variable."""
    return int(native.shape[1:].num_elements() * native.dtype.size)


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


class LookUp:
    """Traces how a server answers with rows of one table.

    Args:
        pieces: of the table, on this server.
        server: the server.
        answers: how replies are headed.
    """

    def __init__(self, pieces: Sequence[Any], *, server: Server, answers: Answers) -> None:
        self.pieces, self.server, self.answers = pieces, server, answers

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers such a request."""
        ledger = self.server.ledger
        with ledger.locked():
            entries = ledger.entries()
            alive = entries.is_alive(
                header[Request.SLOT],
                tf.where(self.answers.is_ours(header), header[Request.INCARNATION], -1),
            )
            rows = [
                as_bytes(piece._value.sparse_read(places))
                for piece, places in zip(self.pieces, places_of(self.pieces, ids), strict=True)
            ]
            found = tf.concat(rows, 0)
            entries.count_traffic(
                received_bytes=ID_BYTES * tf.size(ids, tf.int64),
                sent_bytes=tf.size(found, tf.int64),
            )
            version = entries.read(ledger.books.VERSION)
            ledger.post(entries)
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        return [self.answers.reply(header, status=status, version=version), ids[:0], found]
