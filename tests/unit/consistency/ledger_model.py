"""Servers, workers and the coordinator as plain objects, around the decisions that servers run.

`ServerModel` composes `tfps.consistency.ledger` as `runtime.server` and
`runtime.coordinator` do; `WorkerModel` is `runtime.worker.fit_loop`;
 every message is delivered when the test says so.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.unit.consistency.plain_ledger import PlainLedger
from tfps.consistency import chief_requests, issuing
from tfps.consistency import ledger as decide
from tfps.consistency.ledger import NO_TICKET, Ledger, LedgerLayout, Status
from tfps.runtime.server.admission import (
    AdmitByTicket,
    PushTerms,
    PushVerdict,
    ReceivedPush,
    decide_push,
)
from tfps.transport.message import REQUEST_FIELDS, Kind, Request

PERIOD_STEPS = 3  # batches of a ticket under local steps


@dataclass(frozen=True)
class Wire:
    """The request that a worker sends to one server."""

    kind: Kind
    worker: int
    incarnation: int
    ticket: int = NO_TICKET
    call_number: int = 0
    base_version: int = 0
    acked_ticket: int = NO_TICKET
    closed_steps: int = 1
    examples: int = 0
    visited: tuple[int, ...] = ()  # batches of the acked ticket; the header does not have them

    @property
    def header(self) -> list[int]:
        header = [0] * REQUEST_FIELDS
        header[Request.CLOSED_STEPS] = self.closed_steps
        header[Request.WORKER], header[Request.INCARNATION] = self.worker, self.incarnation
        header[Request.TICKET], header[Request.CALL] = self.ticket, self.call_number
        header[Request.BASE_VERSION] = self.base_version
        header[Request.ACKED_TICKET], header[Request.EXAMPLES] = self.acked_ticket, self.examples
        return header


@dataclass(frozen=True)
class ModelReply:
    """The reply of a server."""

    status: Status
    version: int
    next_ticket: int = NO_TICKET


class ServerModel(PlainLedger):
    """One server: its ledger, the keys that it applied, and a record of what really happened.

    Args:
        index: server 0 hands out tickets.
        slots: how many workers can take part.
        calls: of each training step: whether the call carries gradients.
        drop_above: the staleness above which gradients are dropped.
    """

    def __init__(
        self, *, index: int, workers: int, calls: tuple[bool, ...], drop_above: int | None = None
    ) -> None:
        self.index, self.layout, self.calls = index, LedgerLayout(workers), calls
        self.drop_above = drop_above
        self.dropped: list[tuple[int, int]] = []  # (ticket, call)
        self.moves = itertools.count(1)
        self.refused = 0  # pushes of evicted workers
        self.cells = self.layout.make_blank_cells()
        self.applied_keys: dict[int, int] = {}
        self.applications: Counter[tuple[int, int]] = Counter()
        self.closed: list[int] = []  # tickets, in the order of closing
        self.trained: list[int] = []  # their batches
        self.examples = 0  # of these
        self.finished: list[int] = []  # evaluation tickets
        self.issued: list[int] = []

    @property
    def hands_out_tickets(self) -> bool:
        return self.index == 0

    def __getitem__(self, cell: int) -> int:
        return self.cells[cell]

    def reply_to(self, wire: Wire) -> ModelReply:
        handlers = {
            Kind.JOIN: self._join,
            Kind.PUSH: self._push,
            Kind.FINISH: self._finish,
            Kind.LEAVE: self._leave,
        }
        return handlers[wire.kind](wire)

    def _issue(self, ledger: Ledger, *, alive: bool, worker: int) -> int:
        ticket: int = issuing.issue(ledger, alive=alive, worker=worker, pushed=NO_TICKET)
        self._note_issued(ticket)
        return ticket

    def _note_issued(self, ticket: int) -> None:
        if ticket != NO_TICKET:
            self.issued.append(ticket)

    def _join(self, wire: Wire) -> ModelReply:
        ledger = self.open()
        newer = wire.incarnation > ledger.read(self.layout.incarnation(wire.worker))
        decide.remove(ledger, worker=wire.worker, leaves=newer, closed=False)
        self.write_changes(ledger)
        ledger = self.open()
        accepted = decide.enter(
            ledger, worker=wire.worker, incarnation=wire.incarnation if newer else -1
        )
        ticket = NO_TICKET
        if self.hands_out_tickets:
            ticket = self._issue(ledger, alive=accepted, worker=wire.worker)
        version = ledger.read(self.layout.VERSION)
        self.write_changes(ledger)
        status = Status.OK if accepted else Status.EVICTED
        return ModelReply(status, version, ticket)

    def _push(self, wire: Wire) -> ModelReply:
        is_last, is_update = wire.call_number == len(self.calls) - 1, self.calls[wire.call_number]
        ledger = self.open()
        terms = PushTerms(
            AdmitByTicket(wire.call_number, issues_tickets=is_last and self.hands_out_tickets),
            is_update=is_update,
            counts_as_update=is_update,
            drop_above=self.drop_above if is_update else None,
        )
        pushed = self._judge(ledger, wire, terms)
        self._note_issued(pushed.next_ticket)
        if pushed.closed:
            self._note_closed(wire)
        if pushed.status in (Status.OK, Status.LATE):
            self.applied_keys[wire.ticket] = pushed.new_applied_key
        else:
            assert pushed.new_applied_key == self.applied_keys.get(wire.ticket, -1)
        assert pushed.fresh == (pushed.status == Status.OK)
        if pushed.fresh:
            self.applications[wire.ticket, wire.call_number] += 1
        elif pushed.status == Status.LATE:
            assert self.drop_above is not None
            assert pushed.staleness > self.drop_above
            self.dropped.append((wire.ticket, wire.call_number))
        self.refused += pushed.status == Status.EVICTED
        self.write_changes(ledger)
        assert pushed.version == self[LedgerLayout.VERSION]
        return ModelReply(Status(pushed.status), pushed.version, pushed.next_ticket)

    def _judge(self, ledger: Ledger, wire: Wire, terms: PushTerms) -> PushVerdict:
        verdict = decide_push(
            ledger,
            terms,
            ReceivedPush(
                wire.header,
                wire.worker,
                matches_plan=True,
                alive=ledger.is_alive(wire.worker, wire.incarnation),
                position=wire.base_version,
                applied_key=self.applied_keys.get(wire.ticket, -1),
            ),
        )
        assert verdict.staleness == ledger.read(self.layout.VERSION) - wire.base_version
        return verdict

    def _note_closed(self, wire: Wire) -> None:
        self.closed.append(wire.acked_ticket)
        self.trained += wire.visited
        self.examples += wire.examples

    def _finish(self, wire: Wire) -> ModelReply:
        ledger = self.open()
        alive = ledger.is_alive(wire.worker, wire.incarnation)
        if decide.finish(ledger, alive=alive, worker=wire.worker, ticket=wire.ticket):
            self.finished.append(wire.ticket)
        ticket = self._issue(ledger, alive=alive, worker=wire.worker)
        version = ledger.read(self.layout.VERSION)
        self.write_changes(ledger)
        return ModelReply(Status.OK if alive else Status.EVICTED, version, ticket)

    def _leave(self, wire: Wire) -> ModelReply:
        ledger = self.open()
        alive = ledger.is_alive(wire.worker, wire.incarnation)
        closed = False
        if self.hands_out_tickets:
            closed = self._close(ledger, alive=alive, wire=wire)
        decide.remove(ledger, worker=wire.worker, leaves=alive, closed=closed)
        version = ledger.read(self.layout.VERSION)
        self.write_changes(ledger)
        return ModelReply(Status.OK if alive else Status.EVICTED, version)

    def _close(self, ledger: Ledger, *, alive: bool, wire: Wire) -> bool:
        closed: bool = decide.close(
            ledger,
            alive=alive,
            worker=wire.worker,
            ticket=wire.acked_ticket,
            steps=wire.closed_steps,
            examples=wire.examples,
        )
        if closed:
            self._note_closed(wire)
        return closed

    def evict(self, worker: int, incarnation: int) -> bool:
        ledger = self.open()
        leaves: bool = decide.evict(ledger, worker=worker, incarnation=incarnation)
        self.write_changes(ledger)
        return leaves

    def open_tickets(self, count: int, *, move: int | None = None) -> int:
        """Open some; with the number of an earlier move this repeats that request."""
        ledger = self.open()
        move = next(self.moves) if move is None else move
        first: int = chief_requests.open_tickets(ledger, count=count, term=0, move=move)
        self.write_changes(ledger)
        return first

    def set_limit(self, limit: int, *, move: int | None = None) -> None:
        ledger = self.open()
        move = next(self.moves) if move is None else move
        chief_requests.move_limit(ledger, limit=limit, term=0, move=move)
        self.write_changes(ledger)

    def end_rounds(self, first: int, *, together: int) -> int:
        ledger = self.open()
        limit: int = chief_requests.end_rounds(
            ledger, first=first, together=together, term=0, move=next(self.moves)
        )
        self.write_changes(ledger)
        return limit

    def tickets(self) -> list[int]:
        """The tickets that workers hold or gave back."""
        layout, workers = self.layout, range(self.layout.workers)
        cells = [field(s) for field in (layout.held, layout.unclosed) for s in workers]
        cells += [layout.returned(k) for k in range(self[LedgerLayout.RETURNED])]
        return [self[cell] for cell in cells if self[cell] != NO_TICKET]

    def visited(self) -> set[tuple[int, int]]:
        """Ticket and call of every gradient that was applied or dropped."""
        return {*self.applications, *self.dropped}


@dataclass
class Input:
    """The data of a round: how many batches there are, and how long each is."""

    first: int
    batches: int

    def has(self, number: int) -> bool:
        return number >= 0 and number - self.first < self.batches

    def examples(self, number: int) -> int:
        return 1 + number % 5

    def those_of(self, ticket: int, period_steps: int) -> list[int]:
        """The numbers of a ticket's batches; without periods its own."""
        begin = self.first + (ticket - self.first) * period_steps
        numbers = range(begin, begin + period_steps) if ticket >= 0 else range(0)
        return [number for number in numbers if self.has(number)]


@dataclass
class WorkerModel:
    """One run of a worker's closure. It sends nothing new before all servers have replied."""

    worker: int
    incarnation: int
    servers: int
    calls: tuple[bool, ...]
    data: Input
    trains: bool
    period_steps: int = 1
    running: bool = True  # False: killed; what it has sent may still arrive
    ended: bool = False
    in_flight: dict[int, Wire] = field(default_factory=dict)
    replies: dict[int, ModelReply] = field(default_factory=dict)
    sent: Kind = Kind.JOIN
    ticket: int = NO_TICKET
    visited: list[int] = field(default_factory=list)  # batches of this ticket
    closed: list[int] = field(default_factory=list)  # batches of the acked one
    call_number: int = 0
    acked_ticket: int = NO_TICKET
    versions: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._send(Kind.JOIN, range(self.servers))

    @property
    def can_advance(self) -> bool:
        return self.running and not self.ended and not self.in_flight

    def advance(self) -> None:
        """Act on the replies of all servers."""
        self.versions.update({server: a.version for server, a in self.replies.items()})
        if self.sent is Kind.LEAVE:
            self.ended = True
        elif self.sent is Kind.PUSH and self.call_number < len(self.calls) - 1:
            self.call_number += 1
            self._send(Kind.PUSH, range(self.servers))
        else:
            if self.sent is Kind.PUSH:
                self.acked_ticket, self.closed = self.ticket, self.visited
            self._take(self.replies[0].next_ticket)

    def _take(self, ticket: int) -> None:
        self.ticket, self.call_number = ticket, 0
        self.visited = self.data.those_of(ticket, self.period_steps)
        if not self.visited:
            self._send(Kind.LEAVE, range(self.servers))
        elif self.trains:
            self._send(Kind.PUSH, range(self.servers))
        else:
            self._send(Kind.FINISH, range(1))

    def _send(self, kind: Kind, servers: range) -> None:
        self.sent, self.replies = kind, {}
        steps = kind in (Kind.PUSH, Kind.FINISH)
        self.in_flight = {
            server: Wire(
                kind,
                self.worker,
                self.incarnation,
                ticket=self.ticket if steps else NO_TICKET,
                call_number=self.call_number,
                base_version=self.versions.get(server, 0),
                acked_ticket=self.acked_ticket if kind is not Kind.FINISH else NO_TICKET,
                closed_steps=len(self.closed),
                visited=tuple(self.closed),
                examples=sum(map(self.data.examples, self.closed)),
            )
            for server in servers
        }

    def deliver(self, server: int, servers: Sequence[ServerModel]) -> None:
        self.replies[server] = servers[server].reply_to(self.in_flight.pop(server))
