"""The ledger of a server that comes back: nothing is applied twice, nothing left out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.consistency.plain_ledger import PlainLedger
from tfps.consistency import chief_requests, issuing
from tfps.consistency import ledger as decide
from tfps.consistency.applied_window import NOT_APPLIED, TICKET_CELLS
from tfps.consistency.ledger import LedgerLayout
from tfps.consistency.returned_ledger import applied_on_lost_server, make_returned_ledger

WORKERS, TICKETS = 3, 12
LAYOUT = LedgerLayout(WORKERS)


class BlankLedger(PlainLedger):
    """A ledger of a server that has done nothing, or with cells of another one."""

    layout = LAYOUT

    def __init__(self, cells: list[int] | None = None) -> None:
        self.cells = cells or LAYOUT.make_blank_cells()


class Job:
    """Workers that take tickets, compute and push, with one server that hands them out."""

    def __init__(self) -> None:
        self.ledger = BlankLedger()
        self.closed: list[int] = []
        self.incarnations = dict.fromkeys(range(WORKERS), 0)
        self.held = dict.fromkeys(range(WORKERS), -1)
        self.ledger.do(chief_requests.open_tickets, count=TICKETS, term=0, move=1)

    def step(self, worker: int) -> None:
        """A worker joins, or pushes the ticket that it holds and gets the next one."""
        if not self.incarnations[worker]:
            self.incarnations[worker] = max(self.incarnations.values()) + 1
            self.ledger.do(decide.enter, worker=worker, incarnation=self.incarnations[worker])
            self._issue(worker, pushed=-1)
            return
        pushed, unclosed = self.held[worker], self.ledger.cells[LAYOUT.unclosed(worker)]
        if self.ledger.do(
            decide.close, alive=True, worker=worker, ticket=unclosed, steps=1, examples=4
        ):
            self.closed.append(unclosed)
        self._issue(worker, pushed=pushed)

    def _issue(self, worker: int, *, pushed: int) -> None:
        following = self.ledger.do(issuing.issue, alive=True, worker=worker, pushed=pushed)
        self.held[worker] = following


@given(before=st.lists(st.integers(0, WORKERS - 1), max_size=30), more=st.integers(0, 3))
def test_each_ticket_is_closed_once(before: list[int], more: int) -> None:
    """Tickets closed after the chief's look are closed again, those that it saw closed are not."""
    job = Job()
    for worker in before:
        job.step(worker)
    seen, closed = list(job.ledger.cells), list(job.closed)
    for worker in range(more):
        job.step(worker)
    again = Job()
    again.ledger = BlankLedger(
        make_returned_ledger(
            LAYOUT, living=None, seen=seen, incarnations=job.incarnations, limit=TICKETS
        )
    )
    again.closed = closed
    latest = max([*job.incarnations.values(), 0])
    assert again.ledger.cells[LAYOUT.ACTIVE_WORKERS] == 0
    for worker in range(WORKERS):
        again.incarnations[worker] = latest + 1 + worker
        assert again.ledger.do(decide.enter, worker=worker, incarnation=latest + 1 + worker)
        again._issue(worker, pushed=-1)
    for _ in range(TICKETS + 2):
        for worker in range(WORKERS):
            again.step(worker)
    assert sorted(again.closed) == list(range(TICKETS))
    assert again.ledger.cells[LAYOUT.COMPLETED] == TICKETS
    assert again.ledger.cells[LAYOUT.EXAMPLES] == 4 * TICKETS


def test_an_older_incarnation_stays_out() -> None:
    living = LAYOUT.make_blank_cells()
    living[LAYOUT.incarnation(0)], living[LAYOUT.VERSION] = 5, 30
    cells = make_returned_ledger(LAYOUT, living=living, seen=None, incarnations={0: 4, 1: 7})
    ledger = BlankLedger(cells)
    assert cells[LAYOUT.VERSION] == 30
    assert not ledger.do(decide.enter, worker=0, incarnation=5)
    assert not ledger.do(decide.enter, worker=1, incarnation=7)
    assert ledger.do(decide.enter, worker=1, incarnation=8)


def test_a_halted_run_stays_halted() -> None:
    seen = LAYOUT.make_blank_cells()
    seen[LAYOUT.NEXT], seen[LAYOUT.LIMIT] = 8, 100
    halted = make_returned_ledger(LAYOUT, living=None, seen=seen, incarnations={}, limit=-1)
    goes_on = make_returned_ledger(LAYOUT, living=None, seen=seen, incarnations={}, limit=90)
    assert (halted[LAYOUT.LIMIT], goes_on[LAYOUT.LIMIT]) == (8, 90)


def test_clocks_go_on() -> None:
    """Clocks are the same on all servers, on which a worker's next steps rely."""
    living = LAYOUT.make_blank_cells()
    living[LAYOUT.clock(1)], living[LAYOUT.waiting(1)] = 12, 1
    cells = make_returned_ledger(LAYOUT, living=living, seen=None, incarnations={})
    assert (cells[LAYOUT.clock(1)], cells[LAYOUT.waiting(1)]) == (12, 0)


def test_what_was_applied_and_not_closed_is_remembered() -> None:
    """If no server lived, only the chief knows of it."""
    seen = LAYOUT.make_blank_cells()
    seen[LAYOUT.unclosed(1)] = TICKET_CELLS + 3
    known = applied_on_lost_server(LAYOUT, seen)
    assert np.flatnonzero(known != NOT_APPLIED).tolist() == [3]
    assert known[3] >= decide.key_of(TICKET_CELLS + 3, 0)
    assert set(applied_on_lost_server(LAYOUT, None)) == {NOT_APPLIED}
