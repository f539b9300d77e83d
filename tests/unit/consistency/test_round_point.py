"""Servers that go back to a point between rounds: every example is applied exactly once."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.consistency.plain_ledger import PlainLedger
from tfps.consistency import chief_requests, issuing
from tfps.consistency import ledger as decide
from tfps.consistency.ledger import MAX_CALLS, NEVER, NO_TICKET, LedgerLayout
from tfps.consistency.round_point import (
    RoundPoint,
    choose_next_position,
    index_of_oldest_kept,
    list_returned_tickets,
    make_ledger_at_point,
)

WORKERS, SERVERS, TICKETS, EXAMPLES = 3, 2, 14, 4
LAYOUT = LedgerLayout(WORKERS)


@dataclass
class RepeatedServer(PlainLedger):
    """A ledger, the server's part of a checkpoint, and the tickets that it knows as applied."""

    layout = LAYOUT

    cells: list[int] = field(default_factory=LAYOUT.make_blank_cells)
    rows: Counter[int] = field(default_factory=Counter)  # the gradients in its variables
    applied: dict[int, int] = field(default_factory=dict)

    def join(self, worker: int, incarnation: int) -> bool:
        """Let a newer incarnation in; the tickets of the one before go back first."""
        if incarnation <= self.cells[LAYOUT.incarnation(worker)]:
            return False
        self.do(decide.remove, worker=worker, leaves=True, closed=False)
        return bool(self.do(decide.enter, worker=worker, incarnation=incarnation))

    def push(self, worker: int, incarnation: int, ticket: int) -> None:
        """Take a gradient once; a whole round has a position of its own."""
        alive = (
            self.cells[LAYOUT.active(worker)] == 1
            and self.cells[LAYOUT.incarnation(worker)] == incarnation
        )
        if alive and ticket not in self.applied:
            self.applied[ticket] = decide.key_of(ticket, 0)
            self.rows[ticket] += 1
            self.cells[LAYOUT.VERSION] += 1
            self.cells[LAYOUT.POSITION] += MAX_CALLS


class Job:
    """Workers that compute tickets, servers, and a chief that lets them go back."""

    def __init__(self) -> None:
        self.servers = [RepeatedServer() for _ in range(SERVERS)]
        self.moves = itertools.count(1)
        self.incarnations = dict.fromkeys(range(WORKERS), 0)
        self.held = dict.fromkeys(range(WORKERS), NO_TICKET)
        self.acked = dict.fromkeys(range(WORKERS), NO_TICKET)
        self.late: list[tuple[int, int, int]] = []  # pushes that may still arrive
        self.points: list[tuple[RoundPoint, list[Counter[int]]]] = []
        self.servers[0].do(
            chief_requests.open_tickets, count=TICKETS, term=0, move=next(self.moves)
        )
        self.note()

    def step(self, worker: int, *, dies_after: int = SERVERS) -> None:
        """A worker joins, or pushes what it has computed and gets the next ticket."""
        if not self._is_in(worker):
            self._join(worker)
            return
        ticket, incarnation = self.held[worker], self.incarnations[worker]
        if ticket == NO_TICKET:
            return
        for server in self.servers[:dies_after]:
            server.push(worker, incarnation, ticket)
        if dies_after < SERVERS:
            self.late.append((worker, incarnation, ticket))
            self.evict(worker)
            return
        self._close(worker)
        following = self.servers[0].do(issuing.issue, alive=True, worker=worker, pushed=ticket)
        self.acked[worker], self.held[worker] = ticket, following

    def _is_in(self, worker: int) -> bool:
        return self.servers[0].cells[LAYOUT.active(worker)] == 1

    def _join(self, worker: int) -> None:
        incarnation = self.incarnations[worker] = max(self.incarnations.values()) + 1
        for server in self.servers:
            assert server.join(worker, incarnation)
        following = self.servers[0].do(issuing.issue, alive=True, worker=worker, pushed=NO_TICKET)
        self.acked[worker], self.held[worker] = NO_TICKET, following

    def _close(self, worker: int) -> None:
        self.servers[0].do(
            decide.close,
            alive=True,
            worker=worker,
            ticket=self.acked[worker],
            steps=1,
            examples=EXAMPLES,
        )

    def evict(self, worker: int) -> None:
        for server in self.servers:
            server.do(decide.evict, worker=worker, incarnation=self.incarnations[worker])

    def drain(self) -> None:
        """All workers leave; their last tickets are closed, those that they hold go back."""
        for worker in filter(self._is_in, range(WORKERS)):
            self._close(worker)
            for server in self.servers:
                server.do(decide.remove, worker=worker, leaves=True, closed=self.acked[worker] >= 0)

    def note(self) -> None:
        """A checkpoint, and the point that belongs to it."""
        self.drain()
        ledgers = tuple(tuple(server.cells) for server in self.servers)
        returned = list_returned_tickets(LAYOUT, ledgers[0])
        point = RoundPoint(
            checkpoint=len(self.points),
            ledgers=ledgers,
            applied=tuple(
                {ticket: server.applied.get(ticket, -1) for ticket in returned}
                for server in self.servers
            ),
        )
        self.points.append((point, [copy.copy(server.rows) for server in self.servers]))

    def go_back(self, *, anew: int, point: int) -> None:
        """A server was lost: all of them go back."""
        for worker in range(WORKERS):
            if self.held[worker] != NO_TICKET and self._is_in(worker):
                self.late.append((worker, self.incarnations[worker], self.held[worker]))
        del self.points[point + 1 :]
        then, rows = self.points[point]
        self.servers[anew] = RepeatedServer()
        position = choose_next_position(LAYOUT, [*(s.cells for s in self.servers), *then.ledgers])
        for server, cells, keys, values in zip(
            self.servers, then.ledgers, then.applied, rows, strict=True
        ):
            server.cells = make_ledger_at_point(
                LAYOUT, cells, incarnations=self.incarnations, position=position, fence=0
            )
            server.rows = copy.copy(values)
            server.applied = {ticket: key for ticket, key in keys.items() if key >= 0}
        self.servers[0].do(chief_requests.move_limit, limit=TICKETS, term=0, move=next(self.moves))

    def deliver_late(self) -> None:
        for worker, incarnation, ticket in self.late:
            for server in self.servers:
                server.join(worker, incarnation)
                server.push(worker, incarnation, ticket)
        self.late.clear()

    def finish(self) -> None:
        for _ in range(3 * TICKETS):
            for worker in range(WORKERS):
                self.step(worker)
        self.drain()


EVENTS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("die"), st.integers(0, WORKERS - 1), st.integers(0, SERVERS - 1)),
    st.tuples(st.just("note")),
    st.tuples(st.just("late")),
    st.tuples(st.just("lose"), st.integers(0, SERVERS - 1), st.integers(0, 1)),
)


# A ticket that one server has applied is with no worker when a checkpoint is taken.
HALF_DONE = [("step", 0), ("step", 0), ("die", 0, 1), ("note",), ("step", 1), ("lose", 0, 0)]


@given(st.lists(EVENTS, max_size=60))
@example(HALF_DONE)
def test_every_example_is_applied_once(events: list[tuple[Any, ...]]) -> None:
    """Whatever steps, deaths of workers, checkpoints and lost servers come before the end."""
    job = Job()
    for name, *numbers in events:
        if name == "step":
            job.step(numbers[0])
        elif name == "die" and job._is_in(numbers[0]) and job.held[numbers[0]] != NO_TICKET:
            job.step(numbers[0], dies_after=numbers[1])
        elif name == "note":
            job.note()
        elif name == "late":
            job.deliver_late()
        elif name == "lose":
            # The newest point, or the one before where the newest checkpoint is damaged.
            job.go_back(anew=numbers[0], point=max(0, len(job.points) - 1 - numbers[1]))
            job.deliver_late()
    job.finish()
    for server in job.servers:
        assert server.rows == Counter(range(TICKETS))
        assert server.cells[LAYOUT.VERSION] == TICKETS
    tickets = job.servers[0].cells
    assert tickets[LAYOUT.COMPLETED] == TICKETS
    assert tickets[LAYOUT.EXAMPLES] == EXAMPLES * TICKETS


def test_what_was_contributed_before_does_not_count() -> None:
    """The current round is another one than those that were abandoned, on every server."""
    then, now = LAYOUT.make_blank_cells(), LAYOUT.make_blank_cells()
    then[LAYOUT.POSITION], now[LAYOUT.POSITION] = 3 * MAX_CALLS, 5 * MAX_CALLS + 1
    then[LAYOUT.contributed(1)], then[LAYOUT.begins(1)] = 1, 2
    position = choose_next_position(LAYOUT, [then, now])
    back = make_ledger_at_point(LAYOUT, then, incarnations={1: 7}, position=position, fence=9)
    assert (position, back[LAYOUT.POSITION]) == (6 * MAX_CALLS, 6 * MAX_CALLS)
    assert (back[LAYOUT.contributed(1)], back[LAYOUT.begins(1)]) == (0, NEVER)
    assert (back[LAYOUT.FENCE], back[LAYOUT.incarnation(1)]) == (9, 7)


def test_what_this_process_writes_changes_the_state() -> None:
    cells = tuple(LAYOUT.make_blank_cells())
    point = RoundPoint(checkpoint=1, ledgers=(cells,), applied=({},), writes={"rate": 2, "w": 0})
    assert point.is_unchanged(LAYOUT, {0: cells}, {"rate": 2, "w": 0})
    assert point.written_since({"rate": 3, "w": 0, "new": 1}) == ["new", "rate"]
    assert not point.is_unchanged(LAYOUT, {0: cells}, {"rate": 3})
    for cell in (LAYOUT.VERSION, LAYOUT.FENCE):
        moved = list(cells)
        moved[cell] += 1
        assert not point.is_unchanged(LAYOUT, {0: moved}, {"rate": 2})


@given(st.lists(st.booleans(), max_size=8))
def test_two_complete_checkpoints_stay(complete: list[bool]) -> None:
    """All checkpoints newer than these stay as well, which may be complete soon."""
    committed = {k for k, is_there in enumerate(complete) if is_there}
    oldest = index_of_oldest_kept(range(len(complete)), committed=committed)
    assert len([k for k in committed if k >= oldest]) == min(2, len(committed))
    assert oldest == 0 or oldest in committed
