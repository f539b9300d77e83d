"""Leased shards: each batch belongs to one ticket, also if workers die, and none is left."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tests.unit.consistency.ledger_model import PERIOD_STEPS, Input, ServerModel, WorkerModel
from tfps.consistency import issuing
from tfps.consistency.ledger import LedgerLayout
from tfps.consistency.shard_book import BatchPlace, ShardBook
from tfps.transport.message import Kind

UNLIMITED = 1 << 60


def _book(shards: int) -> ShardBook:
    return ShardBook(shards, is_at_work=lambda slot: True)


def test_a_worker_begins_with_the_shard_of_its_index_and_keeps_it() -> None:
    book = _book(3)
    found = [book.find_place(position, worker=position % 2) for position in range(4)]
    assert found == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_a_ticket_that_is_repeated_has_the_same_batch() -> None:
    book = _book(2)
    first = book.find_place(0, worker=0)
    assert book.find_place(1, worker=1) != first
    assert book.find_place(0, worker=1) == first


def test_where_a_shard_ends_the_ticket_gets_another_batch() -> None:
    book = _book(2)
    assert [book.find_place(position, worker=0) for position in range(2)] == [(0, 0), (0, 1)]
    book.end(BatchPlace(0, 1))
    assert book.find_place(1, worker=0) == (1, 0)
    book.end(BatchPlace(1, 0))
    assert book.find_place(1, worker=0) is None
    assert book.exhausted
    assert book.has_place(0)
    assert not book.has_place(1)


def test_only_the_shard_of_a_lost_worker_is_leased_on() -> None:
    lost: set[int] = set()
    book = ShardBook(2, is_at_work=lambda slot: slot not in lost)
    for slot in range(2):
        book.find_place(slot, worker=slot)
    book.end(BatchPlace(0, 1))
    assert book.find_place(2, worker=0) is None
    lost.add(1)
    assert book.find_place(2, worker=0) == (1, 1), (
        "it goes on where the places of the lost worker end"
    )
    lost.clear()
    assert book.find_place(3, worker=1) is None, (
        "a worker that returns finds its shard with another one"
    )


def test_tickets_that_are_pushed_together_have_as_many_batches_when_repeated() -> None:
    lost: set[int] = set()
    book = ShardBook(2, is_at_work=lambda slot: slot not in lost)
    assert book.find_place(8, worker=1) == (1, 0)
    assert book.find_place(0, worker=0) == (0, 0)
    book.end(BatchPlace(0, 1))
    assert book.find_place(1, worker=0, may_wait=False) is None
    lost.add(1)
    assert book.find_place(0, worker=0) == (0, 0)
    assert book.find_place(1, worker=0, may_wait=False) is None
    assert book.find_place(2, worker=0) == (1, 1), "the next ticket has what is left"


def test_positions_begin_anew_with_each_round_of_a_pass() -> None:
    book = _book(1)
    assert [book.find_place(position, worker=0) for position in range(3)] == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]
    book.begin_ticket_run(2)
    assert [book.find_place(position, worker=0) for position in range(2)] == [(0, 2), (0, 3)]


def test_a_ticket_beyond_all_shards_does_not_hide_one_that_came_back() -> None:
    """Worker 1 finds no shard that is free; the ticket of worker 0, which dies, lies above its."""
    job = _Job(None, kind="evaluates", workers=2, lengths=[2])
    job.server.open_tickets(UNLIMITED)
    first, second = (_Walker(job, worker=slot, incarnation=slot + 1) for slot in range(2))
    for worker in (first, second, first):
        worker.deliver(0, [job.server])
        worker.advance()
    second.deliver(0, [job.server])
    assert (first.ticket, second.sent) == (2, Kind.LEAVE)
    job.evict(first)
    second = _Walker(job, worker=1, incarnation=3)
    second.deliver(0, [job.server])
    second.advance()
    second.deliver(0, [job.server])
    assert second.sent is Kind.LEAVE
    assert job.used() == [(0, 0)]
    assert job.left_out() == 1
    job.finish(_Walker(job, worker=1, incarnation=4))
    assert job.used() == [(0, 0), (0, 1)]
    assert job.left_out() == 0


@given(
    data=st.data(),
    workers=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    losses=st.integers(0, 4),
    limit=st.sampled_from([UNLIMITED, UNLIMITED, 3, 40]),
)
def test_every_batch_is_used_once(
    data: st.DataObject, workers: int, lengths: list[int], losses: int, limit: int
) -> None:
    """Workers die at any time and may come back; their shards go to the others."""
    kind = data.draw(st.sampled_from(["evaluates", "trains", "in periods"]))
    job = _Job(data, kind=kind, workers=workers, lengths=lengths)
    job.run(limit=limit, losses=losses)
    used = Counter(job.used())
    batches = {(s, index) for s, length in enumerate(lengths) for index in range(length)}
    assert set(used.values()) <= {1}
    assert set(used) <= batches
    if limit >= len(batches) + PERIOD_STEPS * workers * (losses + 1):
        assert set(used) == batches
    elif kind != "in periods":
        assert len(used) == min(limit, len(batches))


class _Job:
    """Rounds of closures, as a ticket run sends them out, until no batch is left."""

    def __init__(self, data: Any, *, kind: str, workers: int, lengths: list[int]) -> None:
        self._data, self._kind, self._workers, self._lengths = data, kind, workers, lengths
        self.server = ServerModel(index=0, workers=workers, calls=(True,))
        self.period_steps = PERIOD_STEPS if kind == "in periods" else 1
        self._working: list[_Walker] = []
        self._lost: set[int] = set()
        self.book = ShardBook(len(lengths), is_at_work=lambda slot: slot not in self._lost)
        self._incarnations = itertools.count(1)

    def run(self, *, limit: int, losses: int) -> None:
        self.server.open_tickets(limit)
        to_start = self._workers
        for _ in range(1000):
            if not (self._working or to_start):
                to_start = self.left_out()
                if not to_start:
                    return
            while to_start and (free := self._free_workers()):
                slot = self._data.draw(st.sampled_from(free))
                self._working.append(
                    _Walker(self, worker=slot, incarnation=next(self._incarnations))
                )
                to_start -= 1
            worker = self._data.draw(st.sampled_from(self._working))
            if losses and self._data.draw(st.booleans()):
                losses -= 1
                self._working.remove(worker)
                if len(self._lost) < self._workers - 1 and self._data.draw(st.booleans()):
                    self.evict(worker)  # for good, or until it is started again
                else:
                    self.server.evict(worker.worker, worker.incarnation)
                to_start += 1
            elif worker.can_advance:
                worker.advance()
                if worker.ended:
                    self._working.remove(worker)
            else:
                worker.deliver(0, [self.server])
            if self._lost and self._data.draw(st.booleans()):
                self._lost.pop()
        raise AssertionError("the round does not end")

    def evict(self, worker: _Walker) -> None:
        self.server.evict(worker.worker, worker.incarnation)
        self._lost.add(worker.worker)

    def finish(self, worker: _Walker) -> None:
        while not worker.ended:
            worker.deliver(0, [self.server])
            worker.advance()

    def _free_workers(self) -> list[int]:
        taken = self._lost | {worker.worker for worker in self._working}
        return sorted(set(range(self._workers)) - taken)

    def left_out(self) -> int:
        """Return how many closures must run again, as `TicketRun` decides when all have ended."""
        server, layout = self.server, self.server.layout
        present = self._workers - len(self._lost)
        returned = {server[layout.returned(k)] for k in range(server[LedgerLayout.RETURNED])}
        if not self.book.exhausted:
            has_tickets = returned or server[LedgerLayout.NEXT] < server[LedgerLayout.LIMIT]
            return present if has_tickets else 0
        placed = {each for each in returned if self.book.has_place(each * self.period_steps)}
        if not placed:
            return 0
        for ticket in returned - placed:
            ledger = server.open()
            assert issuing.withdraw_ticket(ledger, ticket=ticket)
            server.write_changes(ledger)
        return present

    def finds(self, number: int, *, worker: int, may_wait: bool) -> bool:
        """Ask for places until there is a batch, as a worker does."""
        while (place := self.book.find_place(number, worker=worker, may_wait=may_wait)) is not None:
            if place.batch < self._lengths[place.shard]:
                return True
            self.book.end(BatchPlace(place.shard, self._lengths[place.shard]))
        return False

    def used(self) -> list[BatchPlace]:
        """The place of each batch that counted."""
        assert set(self.server.applications.values()) <= {1}
        numbers = [*self.server.finished, *self.server.trained]
        places = [self.book.find_place(number, worker=0) for number in numbers]
        assert None not in places
        return [place for place in places if place is not None]


class _Walker(WorkerModel):
    """A worker that asks for the batch of each ticket."""

    def __init__(self, job: _Job, *, worker: int, incarnation: int) -> None:
        super().__init__(
            worker=worker,
            incarnation=incarnation,
            servers=1,
            calls=(True,),
            data=_Leased(job, worker=worker),
            trains=job._kind != "evaluates",
            period_steps=job.period_steps,
        )


class _Leased(Input):
    def __init__(self, job: _Job, *, worker: int) -> None:
        super().__init__(first=0, batches=0)
        self._job, self._slot = job, worker

    def those_of(self, ticket: int, period_steps: int) -> list[int]:
        found: list[int] = []
        for step in range(period_steps if ticket >= 0 else 0):
            number = ticket * period_steps + step
            if not self._job.finds(number, worker=self._slot, may_wait=step == 0):
                break
            found.append(number)
        return found
