"""Requests made by hand, to the functions that servers serve.

The one place of these tests that knows how a function is found and how a header is laid out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import tfps
from tfps.consistency.ledger import Status
from tfps.testing.in_process import InProcessRoutes
from tfps.transport.message import PROTOCOL, REQUEST_FIELDS, Kind, Reply, Request

FIELDS = {
    "worker": Request.SLOT,
    "incarnation": Request.INCARNATION,
    "ticket": Request.TICKET,
    "base_version": Request.BASE_VERSION,
    "acked_ticket": Request.CLOSES,
    "examples": Request.EXAMPLES,
    "closed_steps": Request.CLOSED_STEPS,
    "clock": Request.CLOCK,
    "step_examples": Request.STEP_EXAMPLES,
    "plan": Request.PLAN,
    "protocol": Request.PROTOCOL,
}
NOT_MEASURED = (
    Request.PUSH_MICROSECONDS,
    Request.PULL_MICROSECONDS,
    Request.WAIT_MICROSECONDS,
    Request.BATCH_MICROSECONDS,
)


class Answer(NamedTuple):
    """What a server says to a request.

    Attributes:
        version: of the parameters; where there are rounds, the server's position in them.
        weight: the first number of the payload, if there is one.
    """

    status: Status
    version: int
    ticket: int
    clock: int
    weight: float | None


class Requests:
    """Asks the servers of a strategy as a worker of a program does.

    Args:
        strategy: of one process; it has trained, so that its servers serve a program.
        has: a kind of request that this program knows, and no other one of the strategy.
    """

    def __init__(self, strategy: tfps.ParameterServerStrategy, *, has: Kind) -> None:
        self.runtime = strategy.runtime
        routes = self.runtime.data_plane
        assert isinstance(routes, InProcessRoutes)
        self._functions: list[dict[tuple[int, int], Any]] = [{} for _ in self.runtime.servers]
        self._request_bytes: list[dict[tuple[int, int], int]] = [{} for _ in self.runtime.servers]
        self._plans = [0 for _ in self.runtime.servers]
        for (server, plan_id), plan in routes.plans.items():
            entries = plan.service.entries
            if any(entry.kind == has for entry in entries):
                self._plans[server] = plan_id
                keys = [(entry.kind, entry.stage) for entry in entries]
                self._functions[server] = dict(zip(keys, plan.functions, strict=True))
                self._request_bytes[server] = {
                    key: entry.request_bytes for key, entry in zip(keys, entries, strict=True)
                }

    def kinds(self, server: int) -> set[Kind]:
        """What the server can be asked for."""
        return {Kind(kind) for kind, _ in self._functions[server]}

    def calls(self, server: int) -> list[int]:
        """The optimizer calls that have a push."""
        return sorted(call for kind, call in self._functions[server] if kind == Kind.PUSH)

    def ask(
        self, kind: Kind, *, server: int = 0, call: int = 0, gradient: float = 0.0, **fields: int
    ) -> Answer:
        """Make a request.

        Args:
            kind: of the request.
            server: which one is asked.
            call: which optimizer call.
            gradient: the first number of the payload, if it has one.
            fields: of the header, by the names in `FIELDS`.
        """
        header = np.zeros(REQUEST_FIELDS, np.int64)
        header[list(NOT_MEASURED)] = -1
        header[Request.PROTOCOL], header[Request.JOB] = PROTOCOL, self.runtime.job_id
        header[Request.PLAN] = self._plans[server]
        header[Request.KIND], header[Request.STAGE] = kind, call
        header[Request.CLOSES] = -1
        for name, value in fields.items():
            header[FIELDS[name]] = value
        payload = np.zeros(self._request_bytes[server][kind, call], np.uint8)
        number = np.frombuffer(np.float32(gradient).tobytes(), np.uint8)
        payload[: len(number)] = number[: len(payload)]
        reply, _, answer = self._functions[server][kind, call](
            tf.constant(header), tf.zeros([0], tf.int64), tf.constant(payload)
        )
        numbers = answer.numpy().tobytes()[:4]
        return Answer(
            Status(int(reply[Reply.STATUS])),
            int(reply[Reply.VERSION]),
            int(reply[Reply.NEXT_TICKET]),
            int(reply[Reply.CLOCK]),
            float(np.frombuffer(numbers, np.float32)[0]) if numbers else None,
        )

    def incarnation(self, worker: int) -> int:
        """A new one."""
        return self.runtime.next_incarnation(worker)

    def open_tickets(self, count: int) -> int:
        """Let so many be handed out; the first of them."""
        server = self.runtime.ticket_server
        first = server.open_tickets(count)
        server.set_limit(first + count)
        return first

    def evict(self, worker: int, incarnation: int) -> None:
        self.runtime.evict(worker, incarnation)

    def counted(self, name: str, *, server: int = 0) -> int:
        """A number of a server's ledger, by its name there."""
        cells = self.runtime.servers[server].cells()
        return int(cells[getattr(self.runtime.servers[server].books, name)])
