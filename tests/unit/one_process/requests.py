"""Requests made by hand, to the functions that servers serve.

The one place of these tests that knows how a function is found and how a header is laid out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import tfps
from tfps.consistency.ledger import Status
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.message import PROTOCOL, REQUEST_FIELDS, Kind, Reply, Request
from tfps.transport.service import Entry

FIELDS = {
    "worker": Request.WORKER,
    "incarnation": Request.INCARNATION,
    "ticket": Request.TICKET,
    "base_version": Request.BASE_VERSION,
    "acked_ticket": Request.ACKED_TICKET,
    "examples": Request.EXAMPLES,
    "closed_steps": Request.CLOSED_STEPS,
    "clock": Request.CLOCK,
    "step_examples": Request.STEP_EXAMPLES,
    "batch_microseconds": Request.BATCH_MICROSECONDS,
    "plan": Request.PLAN,
    "protocol": Request.PROTOCOL,
}
NOT_MEASURED = (
    Request.PUSH_MICROSECONDS,
    Request.PULL_MICROSECONDS,
    Request.WAIT_MICROSECONDS,
    Request.BATCH_MICROSECONDS,
)


class ServerReply(NamedTuple):
    """The reply of a server to a request.

    Attributes:
        version: of the parameters; where there are rounds, the server's position in them.
        weight: the first number of the payload, if there is one.
        staleness: of the gradient that was pushed.
    """

    status: Status
    version: int
    ticket: int
    clock: int
    weight: float | None
    staleness: int


class Requests:
    """Asks the servers of a strategy as a worker of a program does.

    Args:
        strategy: of one process; it has trained, so that its servers serve a program.
        has: a kind of request that its newest program knows.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy, *, has: Kind) -> None:
        self.runtime = strategy.runtime
        self.carrier = strategy.runtime.data_plane.carrier
        self._plans: list[int] = []
        self._offers: list[dict[tuple[int, int], tuple[Entry, Any]]] = []
        for contents in self.runtime.contents:
            plan_id, plan = [
                (plan_id, plan)
                for plan_id, plan in contents.plans.items()
                if any(entry.kind == has for entry in plan.service.entries)
            ][-1]
            offers = zip(plan.service.entries, plan.functions, strict=True)
            self._plans.append(plan_id)
            self._offers.append({(each[0].kind, each[0].call_number): each for each in offers})

    def kinds(self, server: int) -> set[Kind]:
        """The kinds of request that the server serves."""
        return {Kind(kind) for kind, _ in self._offers[server]}

    def calls(self, server: int) -> list[int]:
        """The optimizer calls that have a push."""
        return sorted(call for kind, call in self._offers[server] if kind == Kind.PUSH)

    def operations(self, kind: Kind) -> Counter[str]:
        """Count the operations, by type, that serve such a request, outside of conditions."""
        _, function = self._offers[0][kind, 0]
        return Counter(operation.type for operation in function.graph.get_operations())

    def ask(
        self,
        kind: Kind,
        *,
        server: int = 0,
        call: int = 0,
        gradient: float = 0.0,
        rows: Sequence[int] = (),
        **fields: int,
    ) -> ServerReply:
        """Make a request.

        Args:
            kind: of the request.
            server: which one is asked.
            call: which optimizer call.
            gradient: the first number of the payload, if it has one.
            rows: of a table that lies on one server.
            fields: of the header, by the names in `FIELDS`.
        """
        header = np.zeros(REQUEST_FIELDS, np.int64)
        header[list(NOT_MEASURED)] = -1
        header[Request.PROTOCOL], header[Request.JOB] = PROTOCOL, self.runtime.job_id
        header[Request.PLAN] = self._plans[server]
        header[Request.KIND], header[Request.CALL] = kind, call
        header[Request.ACKED_TICKET] = -1
        for name, value in fields.items():
            header[FIELDS[name]] = value
        numbers = np.array([len(rows), *rows] if rows else [], np.int32)
        ids = np.resize(numbers, len(numbers) + len(numbers) % 2).view(np.int64)
        entry, function = self._offers[server][kind, call]
        payload = np.zeros(entry.request_bytes, np.uint8)
        number = np.frombuffer(np.float32(gradient).tobytes(), np.uint8)
        payload[: len(number)] = number[: len(payload)]
        request = Message(
            tf.constant(header), tf.constant(ids, tf.int64, [len(ids)]), tf.constant(payload)
        )
        device = self.runtime.servers[server].device
        asked = ServerCall(device, function, request, entry.reply_bytes)
        reply, _, reply_payload = self.carrier.exchange({server: asked})[server]
        numbers = reply_payload.numpy().tobytes()[:4]
        return ServerReply(
            Status(int(reply[Reply.STATUS])),
            int(reply[Reply.VERSION]),
            int(reply[Reply.NEXT_TICKET]),
            int(reply[Reply.CLOCK]),
            float(np.frombuffer(numbers, np.float32)[0]) if numbers else None,
            int(reply[Reply.STALENESS]),
        )

    def incarnation(self, worker: int) -> int:
        """Return a new incarnation."""
        return self.runtime.members.next_incarnation(worker)

    def open_tickets(self, count: int) -> int:
        """Let `count` tickets be handed out; return the first of them."""
        server = self.runtime.ticket_server
        first = server.open_tickets(count)
        server.set_limit(first + count)
        return first

    def evict(self, worker: int, incarnation: int) -> None:
        self.runtime.members.evict(worker, incarnation)

    def counted(self, name: str, *, server: int = 0) -> int:
        """A number of a server's ledger, by its name there."""
        cells = self.runtime.servers[server].cells()
        return int(cells[getattr(self.runtime.servers[server].layout, name)])
