"""Tickets under every order of messages, losses, zombies and rejoins: none lost, none twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.scaled_examples import scaled_examples
from tests.unit.consistency.ledger_model import PERIOD_STEPS, Input, ServerModel, WorkerModel
from tfps.consistency import chief_requests
from tfps.consistency.ledger import NO_TICKET, STALENESS_BINS, LedgerLayout

UNLIMITED = 1 << 60
DROPS = st.sampled_from([None, None, 0, 2])
# Whether each of a step's exchanges carries gradients; the last of three carries state only.
TRAINING_STEPS = [(True,), (True, True), (True, False)]


@dataclass(eq=False)
class Eviction:
    """The coordinator's calls that evict a worker, one server after the other, 0 first."""

    worker: WorkerModel
    next_server: int = 0


class TicketMachine(RuleBasedStateMachine):
    """A job: rounds of tickets on a cluster whose messages arrive in any order."""

    servers: list[ServerModel]

    def __init__(self) -> None:
        super().__init__()
        self.servers = []
        self.workers: list[WorkerModel] = []
        self.on_duty: dict[int, WorkerModel] = {}
        self.evictions: list[Eviction] = []
        self.incarnation = 0
        self.gone: set[int] = set()  # slots whose workers do not come back in this round
        self.to_start = 0  # closures that wait for a free worker
        self.data = Input(first=0, batches=0)
        self.end, self.trains, self.halted = 0, True, False
        # Of the rounds before this one.
        self.closed_before = self.trained_before = self.evaluated_before = self.examples_before = 0

    @initialize(
        slots=st.integers(1, 3),
        servers=st.integers(1, 3),
        calls=st.sampled_from(TRAINING_STEPS),
        is_length_known=st.booleans(),
        extra=st.tuples(st.sampled_from([1, PERIOD_STEPS]), DROPS),
    )
    def start_job(
        self,
        slots: int,
        servers: int,
        calls: tuple[bool, ...],
        is_length_known: bool,
        extra: tuple[int, int | None],
    ) -> None:
        period_steps, drop_above = extra
        self.slots, self.calls = slots, calls
        self.training_period = period_steps if calls == (True,) else 1
        self.servers = [
            ServerModel(index=p, workers=slots, calls=calls, drop_above=drop_above)
            for p in range(servers)
        ]
        self.layout = self.servers[0].layout
        self.open_round(batches=8, is_length_known=is_length_known, trains=True)

    # What the coordinator does.

    @property
    def free_slots(self) -> list[int]:
        busy = {*self.on_duty, *(eviction.worker.worker for eviction in self.evictions)}
        return [slot for slot in range(self.slots) if slot not in busy | self.gone]

    @property
    def is_idle(self) -> bool:
        """The coordinator waits for this at the end of a round. Given-up workers may still run."""
        return not (self.to_start or self.evictions or self.on_duty)

    @precondition(lambda self: self.is_idle and not self.halted)
    @rule(batches=st.integers(0, 12), is_length_known=st.booleans(), trains=st.booleans())
    def open_round(self, batches: int, is_length_known: bool, trains: bool) -> None:
        server = self.servers[0]
        self.closed_before += len(server.closed)
        self.trained_before += len(server.trained)
        self.evaluated_before += len(server.finished)
        self.examples_before += server.examples
        server.closed, server.trained, server.finished, server.issued = [], [], [], []
        server.examples = 0
        self.data = Input(first=server.open_tickets(0), batches=batches)
        self.period_steps = self.training_period if trains else 1
        tickets = -(-batches // self.period_steps)
        self.end = self.data.first + (tickets if is_length_known else UNLIMITED)
        self.trains = trains
        self._run()

    def _run(self) -> None:
        self.gone = set()
        self.servers[0].set_limit(self.end)
        self.halted, self.to_start = False, self.slots

    @precondition(lambda self: not self.is_idle)
    @rule()
    def halt(self) -> None:
        self.halted = True
        self.servers[0].set_limit(-1)

    @precondition(lambda self: self.is_idle and self.halted)
    @rule()
    def resume(self) -> None:
        self._run()

    def _start(self, slot: int) -> None:
        self.to_start -= 1
        self.incarnation += 1
        worker = WorkerModel(
            worker=slot,
            incarnation=self.incarnation,
            servers=len(self.servers),
            calls=self.calls,
            data=self.data,
            trains=self.trains,
            period_steps=self.period_steps,
        )
        self.workers.append(worker)
        self.on_duty[slot] = worker

    @precondition(lambda self: self.on_duty)
    @rule(which=st.integers(0, 2), still_runs=st.booleans())
    def give_up_worker(self, which: int, still_runs: bool) -> None:
        self._give_up(sorted(self.on_duty)[which % len(self.on_duty)], still_runs=still_runs)

    def _give_up(self, slot: int, *, still_runs: bool) -> None:
        """Give a worker up: its process was killed, or its cancelled closure still runs."""
        worker = self.on_duty.pop(slot)
        if not still_runs and len(self.gone) < self.slots - 1:
            self.gone.add(slot)
        worker.running = still_runs
        self.evictions.append(Eviction(worker))

    def _evict(self, eviction: Eviction) -> None:
        worker = eviction.worker
        self.servers[eviction.next_server].evict(worker.worker, worker.incarnation)
        eviction.next_server += 1
        if eviction.next_server == len(self.servers):
            self.evictions.remove(eviction)
            self.to_start += 1

    # What the network and the workers do.

    @property
    def messages(self) -> list[tuple[WorkerModel, int]]:
        return [(worker, server) for worker in self.workers for server in worker.in_flight]

    @rule(
        seed=st.integers(0, 1 << 32), steps=st.integers(3, 40), losses=st.sampled_from([0, 4, 16])
    )
    def proceed(self, seed: int, steps: int, losses: int) -> None:
        """Take random possible steps; in `losses` of 100 steps a worker is lost."""
        random = Random(seed)
        for _ in range(steps):
            if self.on_duty and random.randrange(100) < losses:
                self._give_up(random.choice(sorted(self.on_duty)), still_runs=random.random() < 0.5)
            elif actions := [*self._actions(self.free_slots), *self._ends_of_the_dead()]:
                random.choice(actions)()
            self.check()

    def _advance(self, worker: WorkerModel) -> None:
        worker.advance()
        if worker.ended and self.on_duty.get(worker.worker) is worker:
            del self.on_duty[worker.worker]

    @rule(seed=st.integers(0, 1 << 16))
    def drain(self, seed: int = 0) -> None:
        """Run the job without losses until nothing is left to do.

        The first free worker repeats what others left: a lost worker need not come back.
        """
        random = Random(seed)
        while actions := self._actions(self.free_slots[:1]):
            random.choice(actions)()
            self.check()
        if self.halted:
            self._run()
            self.drain(seed)
        assert self.is_idle

    def _actions(self, free_slots: list[int]) -> list[Callable[[], object]]:
        actions: list[Callable[[], object]] = [
            partial(worker.deliver, server, self.servers)
            for worker, server in self.messages
            if worker.running
        ]
        actions += [partial(self._advance, w) for w in self.workers if w.can_advance]
        actions += [partial(self._evict, eviction) for eviction in self.evictions]
        if self.to_start:
            actions += [partial(self._start, slot) for slot in free_slots]
        return actions

    def _ends_of_the_dead(self) -> list[Callable[[], object]]:
        """The messages of a dead worker arrive late or never."""
        of_the_dead = [(worker, server) for worker, server in self.messages if not worker.running]
        late = [partial(worker.deliver, server, self.servers) for worker, server in of_the_dead]
        return [*late, *(partial(worker.in_flight.pop, server) for worker, server in of_the_dead)]

    def teardown(self) -> None:
        if self.servers:
            self.drain()

    # What holds at every moment.

    @invariant()
    def check(self) -> None:
        if self.servers:
            self._no_ticket_is_lost_or_held_twice()
            self._tickets_are_applied_once_and_before_they_are_closed()
            self._the_books_add_up()
            if self.is_idle:
                self._all_is_done()

    def _no_ticket_is_lost_or_held_twice(self) -> None:
        server = self.servers[0]
        handed_out = list(range(self.data.first, server[LedgerLayout.NEXT]))
        known = [*server.tickets(), *server.closed, *server.finished]
        assert sorted(known) == handed_out
        assert server[LedgerLayout.NEXT] <= self.end or not self.end
        assert set(server.issued) == set(handed_out)
        assert 0 <= server[LedgerLayout.RETURNED] <= self.layout.most_returned
        if self.halted:
            assert server[LedgerLayout.NEXT] == server[LedgerLayout.LIMIT]

    def _tickets_are_applied_once_and_before_they_are_closed(self) -> None:
        closed = self.servers[0].closed
        for server in self.servers:
            assert set(server.applications.values()) <= {1}
            assert len(set(server.dropped)) == len(server.dropped)
            assert not set(server.dropped) & set(server.applications)
            visited = server.visited()
            for call_number in range(len(self.calls)):
                assert all((ticket, call_number) in visited for ticket in closed)

    def _the_books_add_up(self) -> None:
        slots = range(self.slots)
        for server in self.servers:
            updates = [
                call_number for _, call_number in server.applications if self.calls[call_number]
            ]
            assert server[LedgerLayout.VERSION] == len(updates)
            assert server[LedgerLayout.DROPPED] == len(server.dropped) + server.refused
            first_bin = self.layout.staleness(0)
            assert sum(server.cells[first_bin : first_bin + STALENESS_BINS]) == len(updates)
            active = [server[self.layout.active(slot)] for slot in slots]
            assert server[LedgerLayout.ACTIVE_WORKERS] == sum(active)
        for server in self.servers[1:]:
            assert server.tickets() == []
            assert server[LedgerLayout.NEXT] == server[LedgerLayout.COMPLETED] == 0
        server = self.servers[0]
        trained = self.trained_before + len(server.trained)
        evaluated = self.evaluated_before + len(server.finished)
        assert sum(server[self.layout.steps(slot)] for slot in slots) == trained
        assert sum(server[self.layout.evaluation_steps(slot)] for slot in slots) == evaluated
        assert server[LedgerLayout.COMPLETED] == trained + evaluated
        examples = sum(map(self.data.examples, server.trained))
        assert server[LedgerLayout.EXAMPLES] == self.examples_before + examples

    def _all_is_done(self) -> None:
        server = self.servers[0]
        done = sorted([*server.trained, *server.finished])
        upto = self.data.first + self.data.batches
        if self.halted:
            issued = server[LedgerLayout.NEXT] - self.data.first
            upto = min(upto, self.data.first + issued * self.period_steps)
        assert done == list(range(self.data.first, upto))
        closed = self.closed_before + len(server.closed)
        for record in self.servers:
            assert record[LedgerLayout.ACTIVE_WORKERS] == 0
            assert len(record.applications) + len(record.dropped) == closed * len(self.calls)
            assert record[LedgerLayout.VERSION] + len(record.dropped) == closed * sum(self.calls)


TestTickets = TicketMachine.TestCase
TestTickets.settings = settings(
    max_examples=scaled_examples(60), stateful_step_count=60, deadline=None, print_blob=True
)


def test_a_ticket_beyond_the_data_does_not_hide_one_that_came_back() -> None:
    """Found by the machine: the worker that ends on the first must have repeated the second."""
    server = ServerModel(index=0, workers=2, calls=(True,))
    server.open_tickets(UNLIMITED)
    data = Input(first=0, batches=1)
    workers = [_joined(server, slot, slot + 1, data) for slot in (0, 1)]
    assert [worker.ticket for worker in workers] == [0, 1]
    server.evict(0, 1)
    workers[1].deliver(0, [server])  # no batch for ticket 1: it leaves
    assert sorted(server.tickets()) == [0, 1]
    assert _joined(server, 0, 3, data).ticket == 0


def test_a_lost_worker_that_has_not_joined_yet_stays_out() -> None:
    """Its request to join comes after the coordinator's call, on another connection."""
    server = ServerModel(index=0, workers=1, calls=(True,))
    server.open_tickets(2)
    server.evict(0, 1)
    assert _joined(server, 0, 1, Input(first=0, batches=2)).ticket == NO_TICKET
    assert server[LedgerLayout.ACTIVE_WORKERS] == 0
    assert _joined(server, 0, 2, Input(first=0, batches=2)).ticket == 0


def _joined(server: ServerModel, slot: int, incarnation: int, data: Input) -> WorkerModel:
    worker = WorkerModel(
        worker=slot, incarnation=incarnation, servers=1, calls=(True,), data=data, trains=True
    )
    worker.deliver(0, [server])
    worker.advance()
    return worker


@pytest.mark.parametrize("late", ["open_tickets", "set_limit"])
def test_a_request_of_the_chief_that_arrives_late_takes_no_ticket_away(late: str) -> None:
    """It was sent again without a reply; the first one comes when workers hold tickets."""
    server = ServerModel(index=0, workers=2, calls=(True,))
    assert server.open_tickets(0, move=1) == 0
    server.set_limit(0, move=2)
    assert server.open_tickets(0, move=3) == server.open_tickets(0, move=3) == 0
    server.set_limit(3, move=4)
    data = Input(first=0, batches=3)
    workers = [_joined(server, slot, slot + 1, data) for slot in (0, 1)]
    if late == "open_tickets":
        server.open_tickets(0, move=3)
    else:
        server.set_limit(0, move=2)
    assert server[LedgerLayout.LIMIT] == 3
    assert server.tickets() == [0, 1]
    workers[0].deliver(0, [server])
    workers[0].advance()
    assert workers[0].ticket == 2
    server.set_limit(-1, move=5)
    assert server[LedgerLayout.LIMIT] == 3


def test_the_round_that_is_opened_again_is_the_same() -> None:
    server = ServerModel(index=0, workers=1, calls=(True,))
    assert server.open_tickets(4, move=1) == 0
    assert _joined(server, 0, 1, Input(first=0, batches=4)).ticket == 0
    assert server.open_tickets(4, move=1) == 0
    assert server.tickets() == [0]


def test_a_newer_chief_counts_its_own_requests() -> None:
    server = ServerModel(index=0, workers=1, calls=(True,))
    server.open_tickets(4, move=7)
    ledger = server.open()
    chief_requests.claim_job(ledger, term=1)
    server.write_changes(ledger)
    ledger = server.open()
    chief_requests.move_limit(ledger, limit=2, term=1, move=1)
    server.write_changes(ledger)
    assert server[LedgerLayout.LIMIT] == 2


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4), st.integers(0, 9))
def test_a_round_that_has_begun_gets_all_its_tickets(
    first: int, issued: int, together: int, left: int
) -> None:
    server = ServerModel(index=0, workers=1, calls=(True,))
    server.cells[LedgerLayout.NEXT] = first + issued
    end = server.cells[LedgerLayout.LIMIT] = first + issued + left
    limit = server.end_rounds(first, together=together)
    assert limit == server[LedgerLayout.LIMIT]
    rest = limit - (first + issued)
    assert 0 <= rest < together
    assert (limit - first) % together == 0 or limit == end


def test_workers_are_expected_once_by_a_request() -> None:
    """A request that was sent again without a reply may come when they have ended."""
    server = ServerModel(index=1, workers=2, calls=(True,))

    def expects(number: int) -> bool:
        ledger = server.open()
        result = bool(chief_requests.expect(ledger, number=number))
        server.write_changes(ledger)
        return result

    assert [expects(number) for number in (1, 1, 2, 1, 2, 3)] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    ledger = server.open()
    chief_requests.claim_job(ledger, term=1)
    server.write_changes(ledger)
    assert expects(1)
