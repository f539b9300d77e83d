"""Where a server keeps the parts of a message that is too large to come, or go, at once."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.named_resource import NamedResource, open_mutex
from tfps.bridge.resource_holder import ResourceHolder
from tfps.bridge.server_function import server_function
from tfps.consistency.ledger import NO_TICKET, Status
from tfps.transport.carrier import Message
from tfps.transport.message import REQUEST_FIELDS, Reply, Request

Parts = list[tf.Tensor]


class Column(enum.IntEnum):
    """What the server notes about a seat."""

    STAMP = 0  # of the exchange that has it, 0: free
    INCARNATION = 1  # the highest that ever had it; fences out the dead
    RECEIVED_BYTES = 2
    TOUCHED = 3  # grows with every touch, 0: free


class Staging:
    """Seats for the large messages of a job on one server, as named resources.

    A seat holds one exchange's request while its parts come and its reply while its parts go, and
    is empty between exchanges. A worker of `fit` has the seat of its worker: a newer incarnation
    takes it over, an older one is refused. Scheduled functions and the coordinator do not know who
    they are and take a free seat, or the one that was touched longest ago: what is not free while
    that many exchanges are under way belongs to the dead. Every part names its exchange's stamp,
    so parts of two exchanges never meet.

    Args:
        contents: of the server.
        workers: how many can take part.
    """

    def __init__(self, contents: ResourceHolder, *, workers: int) -> None:
        self.device, self._container, self._workers = contents.device, contents.container, workers
        self._seats = 2 * workers + 1  # the coordinator exchanges too
        self._mutex = NamedResource(self._container, "staging_mutex", self.device, open_mutex)
        names = [self._name(k, seat) for k in ("request", "reply") for seat in range(self._seats)]
        # The server makes them when a request needs them.
        contents.add([self._mutex])
        contents.add(NamedResource(self._container, n, self.device) for n in ("staging", *names))

    @cached_property
    def open(self) -> Any:
        """Take a seat. ids: stamp."""
        return self._function(self._open)

    @cached_property
    def put(self) -> Any:
        """Add the next part of the request. ids: stamp, offset, size of the whole."""
        return self._function(self._put)

    @cached_property
    def fetch(self) -> Any:
        """Read a part of the reply; zeros without a seat. ids: stamp, offset, size."""
        return self._function(self._fetch)

    @cached_property
    def close(self) -> Any:
        """Free the seat. ids: stamp."""
        return self._function(self._close)

    def call(self, function: Any, *, request_bytes: int, keeps_reply: bool) -> Any:
        """A server function on a staged request, or with a staged reply. ids: stamp, then its own.

        Args:
            function: from a request to a reply.
            request_bytes: staged before; 0: the request comes with the call.
            keeps_reply: leave the reply's payload to be fetched.
        """

        def staged(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Parts:
            stamp = ids[0]
            with self._locked() as book:
                seat, found = self._find(book, stamp)
                whole = found & (book[seat, Column.RECEIVED_BYTES] == request_bytes)
                if request_bytes:
                    payload = tf.cond(
                        whole, lambda: self._in_seat(seat, self._take_request), lambda: _empty(0)
                    )
            # A late part of a dead worker is nobody's concern; of a scheduled function it is lost.
            is_fenced = header[Request.INCARNATION] > 0
            message = "the seat of a large message was taken over; schedule fewer at a time"
            with tf.control_dependencies([tf.debugging.Assert(whole | is_fenced, [message])]):
                payload = tf.identity(payload)
            reply = tf.cond(
                whole, lambda: list(function(header, ids[1:], payload)), lambda: _refusal(ids[1:])
            )
            if not keeps_reply:
                return list(reply)
            with tf.control_dependencies(reply), self._locked() as book:
                seat, found = self._find(book, stamp)

                def keep(index: int) -> tf.Tensor:
                    return self._assign(self._handle("reply", index), reply[2])

                kept = tf.cond(found, lambda: self._in_seat(seat, keep), lambda: tf.constant(0))
            with tf.control_dependencies([kept]):
                return [tf.identity(reply[0]), reply[1], _empty(0)]

        return self._function(staged)

    def _function(self, trace: Callable[..., Parts]) -> Any:
        with tf.init_scope():
            return server_function(
                trace, device=self.device, signature=Message.signature(REQUEST_FIELDS)
            )

    def _open(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Parts:
        incarnation = header[Request.INCARNATION]
        with self._locked() as book:
            touched = book[:, Column.TOUCHED]
            free = self._workers + tf.argmin(touched[self._workers :])
            seat = tf.where(incarnation > 0, header[Request.WORKER], free)
            accepted = book[seat, Column.INCARNATION] <= incarnation
            row = tf.stack([ids[0], incarnation, 0, tf.reduce_max(touched) + 1])
            self._note(book, seat, tf.where(accepted, row, book[seat]))
            tf.cond(accepted, lambda: self._in_seat(seat, self._clear), lambda: tf.constant(0))
        return _answer(accepted, ids)

    def _put(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Parts:
        stamp, offset, whole_bytes = ids[0], ids[1], ids[2]
        with self._locked() as book:
            seat, found = self._find(book, stamp)
            fits = found & (book[seat, Column.RECEIVED_BYTES] == offset)
            end = offset + tf.size(payload, tf.int64)
            touch = tf.reduce_max(book[:, Column.TOUCHED]) + 1
            row = tf.stack([stamp, header[Request.INCARNATION], end, touch])
            self._note(book, seat, tf.where(fits, row, book[seat]))

            def write(index: int) -> tf.Tensor:
                handle = self._handle("request", index)
                begun = tf.cond(
                    offset == 0,
                    lambda: self._assign(handle, _empty(whole_bytes)),
                    lambda: tf.constant(0),
                )
                with tf.control_dependencies([begun]):
                    done = tf.raw_ops.ResourceStridedSliceAssign(
                        ref=handle, begin=offset[None], end=end[None],
                        strides=tf.ones([1], tf.int64), value=payload,
                    )  # fmt: skip
                return _after(done)

            tf.cond(fits, lambda: self._in_seat(seat, write), lambda: tf.constant(0))
        return _answer(fits, ids)

    def _fetch(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Parts:
        stamp, offset, size = ids[0], ids[1], ids[2]
        with self._locked() as book:
            seat, found = self._find(book, stamp)

            def read(index: int) -> tf.Tensor:
                reply = self._read(self._handle("reply", index))
                return tf.slice(reply, offset[None], size[None])

            part = tf.cond(
                found,
                lambda: self._in_seat(seat, read),
                lambda: tf.zeros(size[None], tf.uint8),
            )
        return [_header(found), ids, part]

    def _close(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Parts:
        with self._locked() as book:
            seat, found = self._find(book, ids[0])
            row = tf.stack([0, book[seat, Column.INCARNATION], 0, 0])
            self._note(book, seat, tf.where(found, row, book[seat]))
            tf.cond(found, lambda: self._in_seat(seat, self._clear), lambda: tf.constant(0))
        return _answer(found, ids)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[tf.Tensor]:
        """The notes about all seats; what is done inside is done by one request at a time."""
        graph = private.current_graph()
        lock = tf.raw_ops.MutexLock(mutex=self._mutex.handle())
        before = len(graph.get_operations())
        with tf.control_dependencies([lock]):
            yield self._book()
        inside = [
            operation
            for operation in graph.get_operations()[before:]
            if operation.op_def.is_stateful and operation.type != "VarHandleOp"
        ]
        with tf.control_dependencies(inside):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    def _book_handle(self) -> tf.Tensor:
        return private.variable_handle(
            shape=[self._seats, len(Column)],
            dtype=tf.int64,
            shared_name="staging",
            container=self._container,
        )

    def _book(self) -> tf.Tensor:
        handle = self._book_handle()
        blank = tf.zeros([self._seats, len(Column)], tf.int64)
        # Made by the first request: the coordinator cannot make a variable while it traces for a
        # worker that came back.
        made = tf.cond(
            tf.raw_ops.VarIsInitializedOp(resource=handle),
            lambda: tf.constant(0),
            lambda: self._assign(handle, blank),
        )
        with tf.control_dependencies([made]):
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)

    def _note(self, book: tf.Tensor, seat: tf.Tensor, row: tf.Tensor) -> None:
        book = tf.tensor_scatter_nd_update(book, seat[None, None], row[None])
        self._assign(self._book_handle(), book)

    def _find(self, book: tf.Tensor, stamp: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        has = book[:, Column.STAMP] == stamp
        return tf.argmax(has), tf.reduce_any(has)

    def _in_seat(self, seat: tf.Tensor, work: Callable[[int], tf.Tensor]) -> tf.Tensor:
        branches = [lambda k=index: work(k) for index in range(self._seats)]
        return tf.switch_case(tf.cast(seat, tf.int32), branches)

    def _name(self, kind: str, seat: int) -> str:
        return f"staging_{kind}_{seat}"

    def _handle(self, kind: str, seat: int) -> tf.Tensor:
        return private.variable_handle(
            shape=[None],
            dtype=tf.uint8,
            shared_name=self._name(kind, seat),
            container=self._container,
        )

    def _assign(self, handle: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        return _after(tf.raw_ops.AssignVariableOp(resource=handle, value=value))

    def _read(self, handle: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.uint8)

    def _take_request(self, seat: int) -> tf.Tensor:
        """The request, which the seat lets go: its memory ends with the function that uses it."""
        handle = self._handle("request", seat)
        # Writes to parts make a read copy the whole, until this is said.
        with tf.control_dependencies([tf.raw_ops.DisableCopyOnRead(resource=handle)]):
            value = self._read(handle)
        with tf.control_dependencies([value]):
            cleared = self._assign(handle, _empty(0))
        with tf.control_dependencies([cleared]):
            return tf.identity(value)

    def _clear(self, seat: int) -> tf.Tensor:
        cleared = [self._assign(self._handle(k, seat), _empty(0)) for k in ("request", "reply")]
        with tf.control_dependencies(cleared):
            return tf.constant(0)


def _after(operation: Any) -> tf.Tensor:
    with tf.control_dependencies([operation]):
        return tf.constant(0)


def _empty(size: Any) -> tf.Tensor:
    # Not `Empty`: it takes 32-bit sizes only.
    return tf.zeros(tf.reshape(tf.cast(size, tf.int64), [1]), tf.uint8)


def _header(accepted: tf.Tensor) -> tf.Tensor:
    status = tf.where(accepted, int(Status.OK), int(Status.EVICTED))
    fields = {Reply.STATUS: status, Reply.NEXT_TICKET: NO_TICKET}
    return tf.stack([tf.cast(fields.get(field, 0), tf.int64) for field in Reply])


def _answer(accepted: tf.Tensor, ids: tf.Tensor) -> Parts:
    return [_header(accepted), ids, tf.zeros([0], tf.uint8)]


def _refusal(ids: tf.Tensor) -> Parts:
    return _answer(tf.constant(False), ids)
