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

MOST_SEVERAL = 3  # tickets at once


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
    batches: int = 1  # that its gradient is the mean of; the header does not say it

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
    batches: int = 1  # tickets that the next one stands for


class ServerModel(PlainLedger):
    """One server: its ledger, the keys that it applied, and a record of what really happened.

    Args:
        index: server 0 hands out tickets.
        slots: how many workers can take part.
        calls: of each training step: whether the call carries gradients.
        drop_above: the staleness above which gradients are dropped.
        several: tickets are handed out several at once.
    """

    def __init__(
        self,
        *,
        index: int,
        workers: int,
        calls: tuple[bool, ...],
        drop_above: int | None = None,
        several: bool = False,
    ) -> None:
        self.index, self.layout, self.calls = index, LedgerLayout(workers), calls
        self.drop_above, self.several = drop_above, several
        self.dropped: list[tuple[int, int]] = []  # (ticket, call)
        self.moves = itertools.count(1)
        self.refused = 0  # pushes of evicted workers
        self.cells = self.layout.make_blank_cells()
        self.applied_keys: dict[int, int] = {}
        self.applications: Counter[tuple[int, int]] = Counter()
        self.batches: dict[int, int] = {}  # of an applied ticket
        self.closed: list[tuple[int, int]] = []  # (ticket, examples), in the order of closing
        self.finished: list[int] = []  # evaluation tickets
        self.issued: list[int] = []
        self.void: list[int] = []  # tickets behind the end of the data, closed with those before

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

    @property
    def quota(self) -> int | None:
        """The quota of the next worker that asks; a different one each time."""
        return 1 + len(self.issued) % MOST_SEVERAL if self.several else None

    def _issue(self, ledger: Ledger, *, alive: bool, worker: int, pushed: int) -> tuple[int, int]:
        grant = issuing.issue(ledger, alive=alive, worker=worker, pushed=pushed, quota=self.quota)
        self._note_issued(grant.ticket, grant.batches)
        return grant.ticket, grant.batches

    def _note_issued(self, ticket: int, batches: int) -> None:
        if ticket != NO_TICKET:
            assert batches >= 1
            self.issued += range(ticket, ticket + batches)

    def _join(self, wire: Wire) -> ModelReply:
        ledger = self.open()
        newer = wire.incarnation > ledger.read(self.layout.incarnation(wire.worker))
        decide.remove(ledger, worker=wire.worker, leaves=newer, closed=False)
        self.write_changes(ledger)
        ledger = self.open()
        accepted = decide.enter(
            ledger, worker=wire.worker, incarnation=wire.incarnation if newer else -1
        )
        ticket, batches = NO_TICKET, 1
        if self.hands_out_tickets:
            ticket, batches = self._issue(
                ledger, alive=accepted, worker=wire.worker, pushed=NO_TICKET
            )
        version = ledger.read(self.layout.VERSION)
        self.write_changes(ledger)
        status = Status.OK if accepted else Status.EVICTED
        return ModelReply(status, version, ticket, batches)

    def _push(self, wire: Wire) -> ModelReply:
        is_last, is_update = wire.call_number == len(self.calls) - 1, self.calls[wire.call_number]
        ledger = self.open()
        terms = PushTerms(
            AdmitByTicket(wire.call_number, issues_tickets=is_last and self.hands_out_tickets),
            is_update=is_update,
            counts_as_update=is_update,
            in_rounds=self.several,
            drop_above=self.drop_above if is_update else None,
        )
        pushed = self._judge(ledger, wire, terms)
        self._note_issued(pushed.grant.ticket, pushed.grant.batches)
        if pushed.closed:
            self._note_closed(wire)
        if pushed.status in (Status.OK, Status.LATE):
            self.applied_keys[wire.ticket] = pushed.new_applied_key
        else:
            assert pushed.new_applied_key == self.applied_keys.get(wire.ticket, -1)
        assert pushed.fresh == (pushed.status == Status.OK)
        if pushed.fresh:
            self.applications[wire.ticket, wire.call_number] += 1
            # A worker that repeats it computes the same gradient.
            assert self.batches.setdefault(wire.ticket, wire.batches) == wire.batches
        elif pushed.status == Status.LATE:
            assert self.drop_above is not None
            assert pushed.staleness > self.drop_above
            self.dropped.append((wire.ticket, wire.call_number))
        self.refused += pushed.status == Status.EVICTED
        self.write_changes(ledger)
        if not self.several:
            assert pushed.version == self[LedgerLayout.VERSION]
        return ModelReply(
            Status(pushed.status),
            self[LedgerLayout.VERSION],
            pushed.grant.ticket,
            batches=pushed.grant.batches,
        )

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
                quota=self.quota if self.several else None,
            ),
        )
        if not self.several:
            assert verdict.staleness == ledger.read(self.layout.VERSION) - wire.base_version
        elif terms.is_update:  # here each contribution is a round
            ledger.count_if(verdict.fresh, self.layout.VERSION)
        return verdict

    def _note_closed(self, wire: Wire) -> None:
        upto = wire.acked_ticket + wire.closed_steps
        self.closed.append((wire.acked_ticket, wire.examples))
        self.closed += [(ticket, 0) for ticket in range(wire.acked_ticket + 1, upto)]
        self.void += range(upto, wire.acked_ticket + self.batches.get(wire.acked_ticket, 1))

    def _finish(self, wire: Wire) -> ModelReply:
        ledger = self.open()
        alive = ledger.is_alive(wire.worker, wire.incarnation)
        if decide.finish(ledger, alive=alive, worker=wire.worker, ticket=wire.ticket):
            self.finished.append(wire.ticket)
        grant = issuing.issue(ledger, alive=alive, worker=wire.worker, pushed=NO_TICKET)
        ticket: int = grant.ticket
        self._note_issued(ticket, 1)
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

    def tickets(self) -> list[int]:
        """The tickets that workers hold or gave back."""
        layout, workers = self.layout, range(self.layout.workers)
        cells = [(layout.held(s), layout.held_batches(s)) for s in workers]
        cells += [(layout.unclosed(s), layout.unclosed_batches(s)) for s in workers]
        cells += [
            (layout.returned(k), layout.returned_batches(k))
            for k in range(self[LedgerLayout.RETURNED])
        ]
        tickets = [(self[ticket], self[batches]) for ticket, batches in cells]
        if not self.several:
            tickets = [(ticket, 1) for ticket, _ in tickets]
        return [
            ticket + number
            for ticket, batches in tickets
            if ticket != NO_TICKET
            for number in range(batches)
        ]

    def visited(self) -> set[tuple[int, int]]:
        """Ticket and call of every batch whose gradient was applied or dropped."""
        applied = {
            (ticket + number, call_number)
            for ticket, call_number in self.applications
            for number in range(self.batches[ticket])
        }
        return applied | set(self.dropped)


@dataclass
class Input:
    """The data of a round: how many batches there are, and how long each is."""

    first: int
    batches: int

    def has(self, ticket: int) -> bool:
        return ticket >= 0 and ticket - self.first < self.batches

    def examples(self, ticket: int) -> int:
        return 1 + ticket % 5

    def those_of(self, ticket: int, batches: int) -> list[int]:
        """The tickets with a batch, of several from one on."""
        return [each for each in range(ticket, ticket + batches) if self.has(each)]


@dataclass
class WorkerModel:
    """One run of a worker's closure. It sends nothing new before all servers have replied."""

    worker: int
    incarnation: int
    servers: int
    calls: tuple[bool, ...]
    data: Input
    trains: bool
    running: bool = True  # False: killed; what it has sent may still arrive
    ended: bool = False
    in_flight: dict[int, Wire] = field(default_factory=dict)
    replies: dict[int, ModelReply] = field(default_factory=dict)
    sent: Kind = Kind.JOIN
    ticket: int = NO_TICKET
    batches: int = 1
    visited: list[int] = field(default_factory=list)  # tickets of this step with a batch
    call_number: int = 0
    acked_ticket: int = NO_TICKET
    closed_steps: int = 1
    examples: int = 0
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
                self.acked_ticket, self.closed_steps = self.ticket, len(self.visited)
                self.examples = sum(map(self.data.examples, self.visited))
            self.batches = self.replies[0].batches
            self._take(self.replies[0].next_ticket)

    def _take(self, ticket: int) -> None:
        self.ticket, self.call_number = ticket, 0
        self.visited = self.data.those_of(ticket, self.batches)
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
                closed_steps=self.closed_steps,
                batches=self.batches,
                examples=self.examples,
            )
            for server in servers
        }

    def deliver(self, server: int, servers: Sequence[ServerModel]) -> None:
        self.replies[server] = servers[server].reply_to(self.in_flight.pop(server))
