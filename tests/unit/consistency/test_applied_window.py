"""Each push of a scheduled function counts once on every server, however its runs end. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaled_examples import scaled_examples
from tests.unit.consistency.plain_ledger import PlainLedger
from tfps.consistency.applied_window import (
    FUNCTION_CELLS,
    MAX_PUSHES,
    NOT_APPLIED,
    TICKET_CELLS,
    WRITE_BACK,
    blank_window,
    cell_of_function,
    cell_of_ticket,
    key_of_function,
    newest_function,
)
from tfps.consistency.ledger import LedgerLayout, Status
from tfps.runtime.server.admission import AdmitByFunction, PushTerms, ReceivedPush, decide_push
from tfps.transport.message import REQUEST_FIELDS, Request

LAYOUT = LedgerLayout(2)
SERVERS, PUSHES = 2, 3
TERMS = PushTerms(AdmitByFunction(), is_update=True)


class Server(PlainLedger):
    """The pushes that a server has applied: in truth, and as its ledger and window say."""

    layout = LAYOUT

    def __init__(self) -> None:
        self.cells = LAYOUT.make_blank_cells()
        self.window = blank_window()
        self.applied: Counter[int] = Counter()

    def push(self, key: int) -> Status:
        header = [0] * REQUEST_FIELDS
        header[Request.TICKET] = key
        cell, ledger = TERMS.admission.get_cell(key), self.open()
        arrival = ReceivedPush(header, 0, True, True, applied_key=int(self.window[cell]))
        verdict = decide_push(ledger, TERMS, arrival)
        self.window[cell] = verdict.new_applied_key
        self.applied[key] += verdict.fresh
        self.write_changes(ledger)
        return Status(verdict.status)


@dataclass
class Run:
    """One run of a function; its pushes go to one server after the other, and wait for all."""

    number: int
    sent: int = 0  # how many messages have arrived

    def goes_on(self, servers: list[Server]) -> bool:
        """Bring the next message; return whether the run has ended."""
        position, server = divmod(self.sent, SERVERS)
        servers[server].push(key_of_function(self.number, position))
        self.sent += 1
        return self.sent == PUSHES * SERVERS


@dataclass
class Job:
    """Functions, and all of their runs that may still send something."""

    servers: list[Server] = field(default_factory=lambda: [Server() for _ in range(SERVERS)])
    runs: list[Run] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)

    def send(self, run: Run) -> None:
        if run.goes_on(self.servers):
            self.runs.remove(run)
            self.ended.add(run.number)


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "again", "send", "kill"]), st.integers(0, 9)))


@settings(max_examples=scaled_examples(200))
@given(steps=STEPS, offset=st.sampled_from([0, FUNCTION_CELLS - 2, 5 * FUNCTION_CELLS - 3]))
def test_each_push_counts_once_on_every_server(steps: list[tuple[str, int]], offset: int) -> None:
    job, begun = Job(), list[int]()
    for step, pick in steps:
        if step == "begin":
            begun.append(1 + offset + len(begun))
            job.runs.append(Run(begun[-1]))
        elif step == "again" and begun:  # its worker was taken for dead, which it may not be
            job.runs.append(Run(begun[pick % len(begun)]))
        elif job.runs:
            run = job.runs[pick % len(job.runs)]
            if step == "kill":
                job.runs.remove(run)
            else:
                job.send(run)
    for number in set(begun) - job.ended:
        job.runs.append(Run(number))
    while job.runs:
        job.send(job.runs[-1])
    all_hold = {key_of_function(number, position) for number in begun for position in range(PUSHES)}
    for server in job.servers:
        assert server.applied == Counter(dict.fromkeys(all_hold, 1))
        assert server.cells[LAYOUT.VERSION] == len(all_hold)
        pushes = server.cells[LAYOUT.EXCHANGES]
        assert server.cells[LAYOUT.DUPLICATES] == pushes - len(all_hold)
        assert server.cells[LAYOUT.DROPPED] == 0
        if begun:
            assert newest_function([blank_window(), server.window]) == begun[-1]


def test_tickets_and_functions_share_no_cell() -> None:
    numbers = np.array([0, 1, 77, FUNCTION_CELLS, 3 * FUNCTION_CELLS - 1, 1 << 34])
    positions = np.array([0, 1, WRITE_BACK])
    cells: Any = cell_of_function(key_of_function(numbers[:, None], positions))
    assert (cells == TICKET_CELLS + (numbers % FUNCTION_CELLS)[:, None]).all()
    assert cells.max() < len(blank_window())
    assert cell_of_ticket(TICKET_CELLS + 5) == 5


def test_what_a_run_assigns_comes_after_all_of_its_pushes() -> None:
    assert WRITE_BACK == MAX_PUSHES - 1
    assert key_of_function(7, WRITE_BACK) == key_of_function(8, 0) - 1


def test_a_job_that_ran_no_function_remembers_none() -> None:
    window = blank_window()
    window[5] = 1 << 40  # a ticket's
    assert newest_function([window]) == newest_function([]) == NOT_APPLIED
