"""Tickets under every order of messages, losses, zombies and rejoins: none lost, none twice."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.consistency.ledger_model import Input, ServerModel, WorkerModel
from tfps.consistency.ledger import STALENESS_BINS, Books

UNLIMITED = 1 << 60
# Whether each of a step's exchanges carries gradients; the last of three carries state only.
TRAINING_STEPS = [(True,), (True, True), (True, False)]


@dataclass(eq=False)
class Eviction:
    """The coordinator's calls to let a worker out, one server after the other, 0 first."""

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
        self.to_start = 0  # closures that wait for a free worker
        self.data = Input(first=0, batches=0)
        self.end, self.trains, self.halted = 0, True, False
        # Of the rounds before this one.
        self.trained_before = self.evaluated_before = self.examples_before = 0

    @initialize(
        slots=st.integers(1, 3), servers=st.integers(1, 3), stages=st.sampled_from(TRAINING_STEPS)
    )
    def start_job(self, slots: int, servers: int, stages: tuple[bool, ...]) -> None:
        self.slots, self.stages = slots, stages
        self.servers = [ServerModel(index=p, slots=slots, stages=stages) for p in range(servers)]
        self.books = self.servers[0].books

    # What the coordinator does.

    @property
    def free_slots(self) -> list[int]:
        busy = {*self.on_duty, *(eviction.worker.slot for eviction in self.evictions)}
        return [slot for slot in range(self.slots) if slot not in busy]

    @property
    def is_idle(self) -> bool:
        """What the coordinator waits for at the end of a round. Given-up workers may still run."""
        return not (self.to_start or self.evictions or self.on_duty)

    @precondition(lambda self: self.is_idle and not self.halted)
    @rule(batches=st.integers(0, 6), is_length_known=st.booleans(), trains=st.booleans())
    def open_round(self, batches: int, is_length_known: bool, trains: bool) -> None:
        server = self.servers[0]
        self.trained_before += len(server.closed)
        self.evaluated_before += len(server.finished)
        self.examples_before += sum(examples for _, examples in server.closed)
        server.closed, server.finished, server.issued = [], [], []
        self.data = Input(first=server.open_tickets(0), batches=batches)
        self.end = self.data.first + (batches if is_length_known else UNLIMITED)
        self.trains = trains
        self._run()

    def _run(self) -> None:
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

    @precondition(lambda self: self.to_start and self.free_slots)
    @rule(data=st.data())
    def start_closure(self, data: st.DataObject) -> None:
        self._start(data.draw(st.sampled_from(self.free_slots)))

    def _start(self, slot: int) -> None:
        self.to_start -= 1
        self.incarnation += 1
        worker = WorkerModel(
            slot=slot,
            incarnation=self.incarnation,
            servers=len(self.servers),
            stages=self.stages,
            data=self.data,
            trains=self.trains,
        )
        self.workers.append(worker)
        self.on_duty[slot] = worker

    @precondition(lambda self: self.on_duty)
    @rule(data=st.data(), still_runs=st.booleans())
    def give_up_worker(self, data: st.DataObject, still_runs: bool) -> None:
        """Its process was killed; or its closure was cancelled and runs on for a while."""
        worker = self.on_duty.pop(data.draw(st.sampled_from(sorted(self.on_duty))))
        worker.running = still_runs
        self.evictions.append(Eviction(worker))

    @precondition(lambda self: self.evictions)
    @rule(data=st.data())
    def evict_from_next_server(self, data: st.DataObject) -> None:
        self._evict(data.draw(st.sampled_from(self.evictions)))

    def _evict(self, eviction: Eviction) -> None:
        worker = eviction.worker
        self.servers[eviction.next_server].evict(worker.slot, worker.incarnation)
        eviction.next_server += 1
        if eviction.next_server == len(self.servers):
            self.evictions.remove(eviction)
            self.to_start += 1

    # What the network and the workers do.

    @property
    def messages(self) -> list[tuple[WorkerModel, int]]:
        return [(worker, server) for worker in self.workers for server in worker.in_flight]

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        worker, server = data.draw(st.sampled_from(self.messages))
        worker.deliver(server, self.servers)

    @precondition(lambda self: any(not worker.running for worker, _ in self.messages))
    @rule(data=st.data())
    def lose_message_of_the_dead(self, data: st.DataObject) -> None:
        of_the_dead = [message for message in self.messages if not message[0].running]
        worker, server = data.draw(st.sampled_from(of_the_dead))
        del worker.in_flight[server]

    @precondition(lambda self: any(worker.can_advance for worker in self.workers))
    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        ready = [worker for worker in self.workers if worker.can_advance]
        self._advance(data.draw(st.sampled_from(ready)))

    def _advance(self, worker: WorkerModel) -> None:
        worker.advance()
        if worker.ended and self.on_duty.get(worker.slot) is worker:
            del self.on_duty[worker.slot]

    @rule()
    def come_to_rest(self) -> None:
        """Left alone, the job does what there is to do; the first free worker repeats what others
        left, so a lost worker need not come back.
        """
        while True:
            of_the_living = [message for message in self.messages if message[0].running]
            ready = [worker for worker in self.workers if worker.can_advance]
            if of_the_living:
                worker, server = of_the_living[0]
                worker.deliver(server, self.servers)
            elif ready:
                self._advance(ready[0])
            elif self.evictions:
                self._evict(self.evictions[0])
            elif self.to_start:
                self._start(self.free_slots[0])
            elif self.halted:
                self.resume()
            else:
                break
            self.check()
        assert self.is_idle

    def teardown(self) -> None:
        if self.servers:
            self.come_to_rest()

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
        closed = [ticket for ticket, _ in server.closed]
        handed_out = list(range(self.data.first, server[Books.NEXT]))
        assert sorted([*server.accounts(), *closed, *server.finished]) == handed_out
        assert server[Books.NEXT] <= self.end or not self.end
        assert set(server.issued) == set(handed_out)
        assert 0 <= server[Books.RETURNED] <= 2 * self.slots
        if self.halted:
            assert server[Books.NEXT] == server[Books.LIMIT]

    def _tickets_are_applied_once_and_before_they_are_closed(self) -> None:
        closed = [ticket for ticket, _ in self.servers[0].closed]
        for server in self.servers:
            assert set(server.applications.values()) <= {1}
            for stage in range(len(self.stages)):
                assert all((ticket, stage) in server.applications for ticket in closed)

    def _the_books_add_up(self) -> None:
        slots = range(self.slots)
        for server in self.servers:
            updates = [stage for _, stage in server.applications if self.stages[stage]]
            assert server[Books.VERSION] == len(updates)
            first_bin = self.books.staleness(0)
            assert sum(server.cells[first_bin : first_bin + STALENESS_BINS]) == len(updates)
            active = [server[self.books.active(slot)] for slot in slots]
            assert server[Books.ACTIVE_WORKERS] == sum(active)
        for server in self.servers[1:]:
            assert server.accounts() == []
            assert server[Books.NEXT] == server[Books.COMPLETED] == 0
        server = self.servers[0]
        trained = self.trained_before + len(server.closed)
        evaluated = self.evaluated_before + len(server.finished)
        assert sum(server[self.books.steps(slot)] for slot in slots) == trained
        assert sum(server[self.books.evaluation_steps(slot)] for slot in slots) == evaluated
        assert server[Books.COMPLETED] == trained + evaluated
        examples = sum(self.data.examples(ticket) for ticket, _ in server.closed)
        assert server[Books.EXAMPLES] == self.examples_before + examples

    def _all_is_done(self) -> None:
        server = self.servers[0]
        done = sorted([*(ticket for ticket, _ in server.closed), *server.finished])
        upto = self.data.first + self.data.batches
        if self.halted:
            upto = min(upto, server[Books.NEXT])
        assert done == list(range(self.data.first, upto))
        trained = self.trained_before + len(server.closed)
        for record in self.servers:
            assert len(record.applications) == trained * len(self.stages)
            assert record[Books.VERSION] == trained * sum(self.stages)
            assert record[Books.ACTIVE_WORKERS] == 0


TestTickets = TicketMachine.TestCase
TestTickets.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, print_blob=True
)
