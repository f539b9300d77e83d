"""Offers the functions of one plan on one server, by kind of request."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.functions.server_function import trace_server_function
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader
from tfps.runtime.message.wire import ServerShards
from tfps.runtime.server.requests import Trace, pack_values
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.message import REQUEST_FIELDS, Kind
from tfps.transport.service import Entry, Service

_numbers = itertools.count()  # two programs of equal layout are two plans
NO_VALUES = ServerShards((), ())


class Offer(NamedTuple):
    """A function that workers may call."""

    entry: Entry
    function: Any
    row_bytes: int = 0  # the most bytes of rows in the reply


class PlanFunctions:
    """Functions of a server that workers may call; they exist as long as this object."""

    def __init__(self, *, runtime: Runtime, server: Server) -> None:
        self.runtime, self.server, self.job_id = runtime, server, runtime.job_id
        self._offers: dict[tuple[Kind, int], Offer] = {}

    def set_plan_id(self, *layouts: object) -> None:
        """Set the plan's id, before anything is offered. Requests of other layouts are refused."""
        text = repr((next(_numbers), layouts)).encode()
        self.plan_id = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
        self.plan = PlanHeader(self.job_id, self.plan_id)

    def has_function(self, kind: Kind, call_number: int = 0) -> bool:
        """Return whether a function exists for a kind of requests."""
        return (kind, call_number) in self._offers

    def call(self, kind: Kind, message: Message, *, call_number: int = 0) -> ServerCall:
        """Return a request for one of the functions; a look-up's ``call_number`` is its table's."""
        entry, function, row_bytes = self._offers[kind, call_number]
        return ServerCall(self.server.device, function, message, entry.reply_bytes, row_bytes)

    @property
    def functions(self) -> list[Any]:
        """The functions of the service, in its order."""
        return [offer.function for offer in self._offers.values()]

    def install(self) -> None:
        """Install the functions on the server as a service."""
        entries = tuple(offer.entry for offer in self._offers.values())
        service = Service(self.job_id, self.plan_id, self.runtime.max_workers, entries)
        first = min(1, len(entries) - 1)  # every step calls it
        reads = [k for k, each in enumerate(entries) if each.kind in (Kind.LOOK_UP, Kind.PULL)]
        hot = tuple(dict.fromkeys([first, *reads]))
        self.runtime.install(
            self.server, ServedPlan(service, tuple(self.functions), hot), owner=self
        )

    def offer(
        self,
        kind: Kind,
        trace: Trace,
        *,
        call_number: int = 0,
        request_bytes: int = 0,
        reply_bytes: int = 0,
        bytes_behind: int = 0,
    ) -> None:
        """Trace the function that replies to a kind of requests, and offer it to workers.

        ``bytes_behind`` is the most bytes, mostly rows, that may follow a payload: in the request
        of a push, else in the reply.
        """

        def serve(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Sequence[tf.Tensor]:
            return trace(tf.unstack(header), ids, payload)

        function = trace_server_function(
            serve,
            device=self.server.device,
            signature=Message.signature(REQUEST_FIELDS),
            handle_of_copy=self.runtime.followed.handle_of_copy,
        )
        self.runtime.followed.check(function.graph)
        pushed, pulled = (bytes_behind, 0) if kind == Kind.PUSH else (0, bytes_behind)
        entry = Entry(kind, call_number, request_bytes, reply_bytes, row_bytes=pushed)
        self._offers[kind, call_number] = Offer(entry, function, pulled)

    def trace_locked(
        self,
        decide: Callable[[Sequence[tf.Tensor], tf.Tensor], ReplyHeader],
        *,
        held: ServerShards = NO_VALUES,
    ) -> Trace:
        """Wrap a decision so that it runs, and values are read for the reply, under the mutex."""

        def trace(
            header: Sequence[tf.Tensor], ids: tf.Tensor, payload: tf.Tensor
        ) -> list[tf.Tensor]:
            with self.server.ledger.locked():
                reply = decide(header, payload)
                values = [native.read_value() for native in held.natives]
            return [reply.to_tensor(), ids, pack_values(held, values)]

        return trace
