"""Store the parts of large messages on a server until all parts have arrived."""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.server_function import trace_server_function
from tfps.bridge.variables.named_resource import NamedResource, open_mutex
from tfps.bridge.variables.resource_holder import ResourceHolder
from tfps.consistency.ledger import NO_TICKET, Status
from tfps.consistency.server_ledger import under_mutex
from tfps.transport.carrier import Message
from tfps.transport.message import REQUEST_FIELDS, Reply, Request

ReplyTensors = list[tf.Tensor]


class Column(enum.IntEnum):
    """Names the columns of the seat table."""

    STAMP = 0  # the exchange that uses the seat; 0: free
    INCARNATION = 1  # the highest that ever used it; excludes dead closures
    RECEIVED_BYTES = 2
    LAST_ACCESS = 3  # grows with every access; 0: free


def _on_server(trace: Callable[..., ReplyTensors]) -> cached_property[Any]:
    """Turn a method into a property that is a server function, traced at its first use."""
    return cached_property(lambda staging: staging._function(functools.partial(trace, staging)))


class Staging:
    """Keeps one server's seats, as named resources; a seat stores one large message.

    A seat stores the request of one exchange while its parts arrive, then its reply while the parts
    are fetched, and is empty between exchanges. In `fit` each worker has its own seat: a newer
    incarnation takes it over, an older one is refused. Scheduled functions and the coordinator have
    no incarnation; they take a free seat, or the one whose last access is oldest. There are enough
    seats that such a seat belongs to a dead exchange. Every part contains its exchange's stamp, so
    parts of two exchanges are never mixed.

    Args:
        contents: the record of the server's resources.
        workers: the number of workers.
    """

    def __init__(self, contents: ResourceHolder, *, workers: int) -> None:
        device, container = self._device, self._container = contents.device, contents.container
        self._workers = workers
        self._seats = 2 * workers + 1  # the coordinator exchanges too
        self._mutex = NamedResource(container, "staging_mutex", device, open_mutex)
        # The server creates them when a request needs them.
        names = ["staging", *map(_seat_name, range(self._seats))]
        contents.add([self._mutex, *(NamedResource(container, name, device) for name in names)])

    @_on_server
    def open(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> ReplyTensors:
        """Reserve a seat for a message; its only id is the stamp of the exchange."""
        incarnation = header[Request.INCARNATION]
        with self._locked() as seat_table:
            free = self._workers + tf.argmin(seat_table[self._workers :, Column.LAST_ACCESS])
            seat = tf.where(incarnation > 0, header[Request.WORKER], free)
            accepted = seat_table[seat, Column.INCARNATION] <= incarnation
            self._write_row(
                seat_table,
                seat,
                [ids[0], incarnation, 0, _next_access_number(seat_table)],
                where=accepted,
            )
            self._run_in_seat(seat, self._clear, where=accepted)
        return _make_reply(accepted, ids)

    @_on_server
    def put(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> ReplyTensors:
        """Append a part of the request to its seat; the ids are stamp, offset and total size."""
        stamp, offset, whole_bytes = ids[0], ids[1], ids[2]
        end = offset + tf.size(payload, tf.int64)

        def write(index: int) -> tf.Tensor:
            handle = self._handle(index)
            begun = _run_if(offset == 0, lambda: self._assign(handle, _zeros(whole_bytes)))
            with tf.control_dependencies([begun]):
                written = tf.raw_ops.ResourceStridedSliceAssign(
                    ref=handle,
                    begin=offset[None],
                    end=end[None],
                    strides=tf.ones([1], tf.int64),
                    value=payload,
                )
            return _zero_after(written)

        with self._locked() as seat_table:
            seat, found = _find_seat(seat_table, stamp)
            fits = found & (seat_table[seat, Column.RECEIVED_BYTES] == offset)
            row = [stamp, header[Request.INCARNATION], end, _next_access_number(seat_table)]
            self._write_row(seat_table, seat, row, where=fits)
            self._run_in_seat(seat, write, where=fits)
        return _make_reply(fits, ids)

    @_on_server
    def fetch(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> ReplyTensors:
        """Read a part of the reply; zeros without a seat. The ids are stamp, offset and size."""
        stamp, offset, size = ids[0], ids[1], ids[2]

        def read(index: int) -> tf.Tensor:
            return tf.slice(self._read(index), offset[None], size[None])

        with self._locked() as seat_table:
            seat, found = _find_seat(seat_table, stamp)
            part = self._run_in_seat(seat, read, where=found, otherwise=lambda: _zeros(size))
        return _make_reply(found, ids, part)

    @_on_server
    def close(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> ReplyTensors:
        """Free a seat; the only id is the stamp of its exchange."""
        with self._locked() as seat_table:
            seat, found = _find_seat(seat_table, ids[0])
            self._write_row(
                seat_table, seat, [0, seat_table[seat, Column.INCARNATION], 0, 0], where=found
            )
            self._run_in_seat(seat, self._clear, where=found)
        return _make_reply(found, ids)

    def call(self, function: Any, *, request_bytes: int, keeps_reply: bool) -> Any:
        """Return a version of a server function for a staged request or reply.

        Its ids are the stamp, then those of the function. It is traced once per function.

        Args:
            function: a server function from a request to a reply.
            request_bytes: the size of the staged request; 0 if the call contains the request.
            keeps_reply: whether to stage the reply's payload, to be fetched later.
        """

        def call_staged(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> ReplyTensors:
            stamp, own_ids = ids[0], ids[1:]
            with self._locked() as seat_table:
                seat, found = _find_seat(seat_table, stamp)
                whole = found & (seat_table[seat, Column.RECEIVED_BYTES] == request_bytes)
                if request_bytes:
                    payload = self._run_in_seat(
                        seat, self._take_request, where=whole, otherwise=lambda: _zeros(0)
                    )
            # A late part of a dead worker is ignored; for a scheduled function it is an error.
            is_fenced = header[Request.INCARNATION] > 0
            message = "another large message replaced this one; schedule fewer functions at a time"
            with tf.control_dependencies([tf.debugging.Assert(whole | is_fenced, [message])]):
                payload = tf.identity(payload)
            reply = tf.cond(
                whole,
                lambda: list(function(header, own_ids, payload)),
                lambda: _make_reply(tf.constant(False), own_ids),
            )
            if not keeps_reply:
                return list(reply)

            def store_reply(index: int) -> tf.Tensor:
                return self._assign(self._handle(index), reply[2])

            with tf.control_dependencies(reply), self._locked() as seat_table:
                seat, found = _find_seat(seat_table, stamp)
                kept = self._run_in_seat(seat, store_reply, where=found)
            with tf.control_dependencies([kept]):
                return [tf.identity(reply[0]), reply[1], _zeros(0)]

        known = function.__dict__.setdefault("_tfps_staged", {})
        key = (self, request_bytes, keeps_reply)
        if key not in known:
            known[key] = self._function(call_staged)
        return known[key]

    def _function(self, trace: Callable[..., ReplyTensors]) -> Any:
        signature = Message.signature(REQUEST_FIELDS)
        with tf.init_scope():
            return trace_server_function(trace, device=self._device, signature=signature)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[tf.Tensor]:
        """Yield the table of seats while this request holds the mutex."""
        with under_mutex(self._mutex.handle()):
            handle, blank = (
                self._seat_table_handle(),
                tf.zeros([self._seats, len(Column)], tf.int64),
            )
            # Created by the first request, since the coordinator cannot create a variable while it
            # traces for a worker that has returned.
            is_new = ~tf.raw_ops.VarIsInitializedOp(resource=handle)
            made = _run_if(is_new, lambda: self._assign(handle, blank))
            with tf.control_dependencies([made]):
                seat_table = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
            yield seat_table

    def _seat_table_handle(self) -> tf.Tensor:
        return private.create_variable_handle(
            shape=[self._seats, len(Column)],
            dtype=tf.int64,
            shared_name="staging",
            container=self._container,
        )

    def _write_row(
        self, seat_table: tf.Tensor, seat: tf.Tensor, row: list[Any], *, where: tf.Tensor
    ) -> None:
        new = tf.where(where, tf.stack(row), seat_table[seat])
        seat_table = tf.tensor_scatter_nd_update(seat_table, seat[None, None], new[None])
        self._assign(self._seat_table_handle(), seat_table)

    def _run_in_seat(
        self,
        seat: tf.Tensor,
        work: Callable[[int], tf.Tensor],
        *,
        where: tf.Tensor,
        otherwise: Callable[[], tf.Tensor] = lambda: tf.constant(0),
    ) -> tf.Tensor:
        branches = [functools.partial(work, index) for index in range(self._seats)]
        return tf.cond(where, lambda: tf.switch_case(tf.cast(seat, tf.int32), branches), otherwise)

    def _handle(self, seat: int) -> tf.Tensor:
        return private.create_variable_handle(
            shape=[None], dtype=tf.uint8, shared_name=_seat_name(seat), container=self._container
        )

    def _assign(self, handle: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        return _zero_after(tf.raw_ops.AssignVariableOp(resource=handle, value=value))

    def _read(self, seat: int) -> tf.Tensor:
        handle = self._handle(seat)
        # After a write to a part every read copies the whole value, unless this is called.
        with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=handle)]):
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.uint8)

    def _take_request(self, seat: int) -> tf.Tensor:
        """Return the request and clear the seat, so that the memory is freed after its use."""
        value = self._read(seat)
        with tf.control_dependencies([value]):
            cleared = self._clear(seat)
        with tf.control_dependencies([cleared]):
            return tf.identity(value)

    def _clear(self, seat: int) -> tf.Tensor:
        return self._assign(self._handle(seat), _zeros(0))


def _seat_name(seat: int) -> str:
    return f"staging_{seat}"


def _find_seat(seat_table: tf.Tensor, stamp: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    has = seat_table[:, Column.STAMP] == stamp
    return tf.argmax(has), tf.reduce_any(has)


def _next_access_number(seat_table: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(seat_table[:, Column.LAST_ACCESS]) + 1


def _run_if(condition: tf.Tensor, branch: Callable[[], tf.Tensor]) -> tf.Tensor:
    return tf.cond(condition, branch, lambda: tf.constant(0))


def _zero_after(operation: Any) -> tf.Tensor:
    with tf.control_dependencies([operation]):
        return tf.constant(0)


def _zeros(size: Any) -> tf.Tensor:
    # Not `Empty`: it takes 32-bit sizes only.
    return tf.zeros(tf.reshape(tf.cast(size, tf.int64), [1]), tf.uint8)


def _make_reply(
    accepted: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor | None = None
) -> ReplyTensors:
    status = tf.where(accepted, int(Status.OK), int(Status.EVICTED))
    fields = {Reply.STATUS: status, Reply.NEXT_TICKET: NO_TICKET}
    header = tf.stack([tf.cast(fields.get(field, 0), tf.int64) for field in Reply])
    return [header, ids, _zeros(0) if payload is None else payload]
