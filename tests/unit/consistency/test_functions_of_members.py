"""Functions of workers that come and go, and are waited for, count once on every server. Pure.

The chief lets workers out, whenever it likes, and tells the servers so in any order, also after
they have begun anew. A server is lost, and is filled with what another one knows. A reply gets
lost. Whatever a server refuses is run again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaled_examples import scaled_examples
from tests.unit.consistency.plain_ledger import PlainLedger
from tfps.consistency import ledger as decide
from tfps.consistency.applied_window import blank_window, key_of_function
from tfps.consistency.ledger import LedgerLayout, Status, takes_part
from tfps.consistency.returned_ledger import make_returned_ledger
from tfps.runtime.server.admission import AdmitByMember, PushTerms, ReceivedPush, decide_push
from tfps.transport.message import REQUEST_FIELDS, Request

WORKERS, SERVERS, PUSHES, FUNCTIONS = 2, 2, 2, 4
LAYOUT = LedgerLayout(WORKERS)
TERMS = PushTerms(AdmitByMember(), is_update=True)
EVENTS = ["send", "send", "send", "evict", "tell", "lose", "reply lost"]


class Server(PlainLedger):
    """A server that accepts pushes of workers that take part."""

    layout = LAYOUT

    def __init__(self) -> None:
        self.cells = LAYOUT.make_blank_cells()
        self.window = blank_window()
        self.counted: Counter[int] = Counter()

    def pull(self, worker: int, incarnation: int) -> Status:
        """Handle the first request of a run; a newer incarnation enters with it."""
        if incarnation > self.cells[LAYOUT.incarnation(worker)]:
            self.do(decide.remove, worker=worker, leaves=True, closed=False)
            self.do(decide.enter, worker=worker, incarnation=incarnation)
        is_alive = self.open().is_alive(worker, incarnation)
        return Status.OK if is_alive else Status.EVICTED

    def push(self, worker: int, incarnation: int, key: int) -> Status:
        header = [0] * REQUEST_FIELDS
        header[Request.TICKET] = key
        cell, ledger = TERMS.admission.get_cell(key), self.open()
        alive, applied = ledger.is_alive(worker, incarnation), int(self.window[cell])
        verdict = decide_push(
            ledger, TERMS, ReceivedPush(header, worker, True, alive, applied_key=applied)
        )
        self.window[cell] = verdict.new_applied_key
        self.counted[key] += verdict.fresh
        self.write_changes(ledger)
        return Status(verdict.status)

    def return_from(self, living: Server, incarnations: dict[int, int]) -> None:
        """It was started anew; what its rows lack is counted as lost, and not of interest here."""
        self.cells = make_returned_ledger(
            LAYOUT, living=living.cells, seen=None, incarnations=incarnations
        )
        self.window, self.counted = living.window.copy(), living.counted.copy()


@dataclass
class Run:
    """A function's run: a pull from each server, then each push to one server after the other."""

    number: int
    incarnation: int
    sent: int = 0
    statuses: list[Status] = field(default_factory=list)  # of the current exchange


class Job:
    """The chief's side: the members, what runs where, and what servers are still to be told."""

    def __init__(self) -> None:
        self.servers = [Server() for _ in range(SERVERS)]
        self.queue = list(range(1, FUNCTIONS + 1))
        self.runs: dict[int, Run] = {}
        self.members: dict[int, int] = {}
        self.latest: dict[int, int] = {}
        self.unsent: list[tuple[int, int, int]] = []  # server, worker, incarnation
        self._incarnations = itertools.count(1)

    def send(self, worker: int, *, is_answered: bool = True) -> None:
        """Bring a worker's next message to its server; it begins a function if it runs none."""
        if worker not in self.runs:
            if not self.queue:
                return
            if worker not in self.members:
                self.members[worker] = self.latest[worker] = next(self._incarnations)
            self.runs[worker] = Run(self.queue.pop(0), self.members[worker])
        run = self.runs[worker]
        exchange, index = divmod(run.sent, SERVERS)
        server = self.servers[index]
        if exchange == 0:
            status = server.pull(worker, run.incarnation)
        else:
            key = key_of_function(run.number, exchange - 1)
            status = server.push(worker, run.incarnation, key)
        run.statuses.append(status if is_answered else Status.LOST)
        run.sent += 1
        if index == SERVERS - 1:
            self._end_exchange(worker, run)

    def _end_exchange(self, worker: int, run: Run) -> None:
        if not takes_part(max(run.statuses)):
            self._run_again(worker)
        elif run.sent == (1 + PUSHES) * SERVERS:
            del self.runs[worker]
        run.statuses.clear()

    def _run_again(self, worker: int) -> None:
        self.queue.append(self.runs.pop(worker).number)
        self.let_out(worker)

    def let_out(self, worker: int) -> None:
        """Evict a worker, also in a function, which goes on until a server refuses it."""
        incarnation = self.members.pop(worker, None)
        if incarnation is not None:
            self.unsent += [(server, worker, incarnation) for server in range(SERVERS)]

    def tell(self, pick: int) -> None:
        if self.unsent:
            index, worker, incarnation = self.unsent.pop(pick % len(self.unsent))
            self.servers[index].do(decide.evict, worker=worker, incarnation=incarnation)

    def lose(self, index: int) -> None:
        """Lose a server; all functions end before it is filled, and members stay members."""
        for worker in list(self.runs):
            self._run_again(worker)
        self.servers[index].return_from(self.servers[1 - index], self.latest)


@settings(max_examples=scaled_examples(300))
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 11)), max_size=60))
def test_each_function_counts_once_on_every_server(events: list[tuple[str, int]]) -> None:
    job = Job()
    for event, pick in events:
        if event == "send":
            job.send(pick % WORKERS)
        elif event == "reply lost":
            job.send(pick % WORKERS, is_answered=False)
        elif event == "evict":
            job.let_out(pick % WORKERS)
        elif event == "tell":
            job.tell(pick)
        else:
            job.lose(pick % SERVERS)
    for turn in itertools.count():
        if not (job.queue or job.runs):
            break
        assert turn < 1000, "a worker is refused for ever"
        job.send(turn % WORKERS)
        job.tell(turn)
    keys = [key_of_function(n, p) for n in range(1, FUNCTIONS + 1) for p in range(PUSHES)]
    for server in job.servers:
        assert server.counted == Counter(dict.fromkeys(keys, 1))
        assert server.cells[LAYOUT.VERSION] == len(keys)
