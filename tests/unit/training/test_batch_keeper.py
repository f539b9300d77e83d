"""The chief's batches: a lost worker loses none, and those that are done with are not kept."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.unit.consistency.ledger_model import PERIOD_STEPS, Input, ServerModel, WorkerModel
from tfps.training.input.feeder import BatchKeeper

# What a worker has: the ticket that it computes and the one before, still unclosed.
ACCOUNT = 2
UNLIMITED = 1 << 60


def test_batches_come_by_number_in_the_order_of_the_iterator() -> None:
    keeper = BatchKeeper(iter("abc"))
    assert [keeper.get(number, worker=1) for number in (1, 0, 2)] == ["b", "a", "c"]
    assert keeper.drawn == 3
    assert not keeper.exhausted


def test_beyond_the_end_there_is_none() -> None:
    keeper = BatchKeeper(iter("ab"))
    assert keeper.get(4, worker=1) is None
    assert keeper.exhausted
    assert keeper.drawn == 2
    assert keeper.get(1, worker=1) == "b"


def test_nothing_is_drawn_before_it_is_asked_for() -> None:
    keeper = BatchKeeper(itertools.count(10))
    assert keeper.get(2, worker=1) == 12
    assert keeper.drawn == 3


def test_a_batch_is_kept_until_the_third_request_proves_it_closed() -> None:
    keeper = BatchKeeper(itertools.count())
    keeper.get(0, worker=1)
    keeper.get(1, worker=1)
    assert keeper.get(0, worker=2) == 0  # worker 1 is lost; both of its batches are kept
    assert keeper.get(1, worker=2) == 1
    keeper.get(2, worker=2)
    assert keeper.get(0, worker=3) is None  # closed, so no worker needs it


def test_a_batch_that_another_worker_has_taken_over_stays() -> None:
    keeper = BatchKeeper(itertools.count())
    keeper.get(0, worker=1)
    keeper.get(0, worker=2)
    for number in (1, 2, 3):
        keeper.get(number, worker=1)
    assert keeper.get(0, worker=3) == 0


def test_an_error_of_the_input_is_its_end_and_is_kept() -> None:
    def batches() -> Iterator[int]:
        yield 0
        raise OSError("a file is gone")

    keeper = BatchKeeper(batches())
    assert keeper.get(0, worker=1) == 0
    assert keeper.get(1, worker=1) is None
    assert isinstance(keeper.failure, OSError)
    assert str(keeper.failure) == "a file is gone"
    assert keeper.get(0, worker=2) == 0, "what was drawn before is still there"


@pytest.mark.parametrize("slots", [1, 3])
def test_many_workers_at_once_get_each_batch_once(slots: int) -> None:
    keeper, count = BatchKeeper(iter(range(300))), itertools.count()
    found: list[int] = []

    def work(worker: int) -> None:
        while (batch := keeper.get(next(count), worker=worker)) is not None:
            found.append(batch)

    threads = [threading.Thread(target=work, args=[slot]) for slot in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(found) == list(range(300))
    assert keeper.kept_count <= ACCOUNT * slots


@given(
    data=st.data(),
    slots=st.integers(1, 3),
    batches=st.integers(0, 12),
    losses=st.integers(0, 4),
    pauses=st.integers(0, 3),
)
def test_workers_with_tickets_visit_every_batch(
    data: st.DataObject, slots: int, batches: int, losses: int, pauses: int
) -> None:
    """A lost worker's tickets come back with their batches; in pauses, all workers may rest."""
    period_steps = data.draw(st.sampled_from([1, PERIOD_STEPS]))
    server = ServerModel(index=0, workers=slots, calls=(True,))
    keeper = BatchKeeper(iter(range(batches)), period_steps=period_steps)
    incarnations = itertools.count(1)
    server.open_tickets(UNLIMITED)
    for is_last in [False] * pauses + [True]:
        server.set_limit(UNLIMITED)
        started, to_start = 0, slots
        working: list[_Asking] = []
        while working or to_start:
            while to_start:
                free = min(set(range(slots)) - {worker.worker for worker in working})
                working.append(
                    _Asking(
                        slot=free,
                        incarnation=next(incarnations),
                        keeper=keeper,
                        period_steps=period_steps,
                    )
                )
                started, to_start = started + 1, to_start - 1
            worker = data.draw(st.sampled_from(working))
            if losses and data.draw(st.booleans()):
                losses -= 1
                server.evict(worker.worker, worker.incarnation)
                working.remove(worker)
                to_start += 1
            elif worker.can_advance:
                worker.advance()
                if worker.ended:
                    working.remove(worker)
            else:
                worker.deliver(0, [server])
            if not is_last and data.draw(st.booleans()):
                server.set_limit(-1)
            assert keeper.kept_count <= (ACCOUNT * period_steps + 1) * started
        keeper.on_drained()
        assert keeper.kept_count == 0
    assert sorted(server.trained) == list(range(batches))


class _Asking(WorkerModel):
    """A worker that asks the keeper for the batch of each ticket."""

    def __init__(
        self, *, slot: int, incarnation: int, keeper: BatchKeeper, period_steps: int
    ) -> None:
        super().__init__(
            worker=slot,
            incarnation=incarnation,
            servers=1,
            calls=(True,),
            data=_Asked(keeper=keeper, worker=incarnation),
            trains=True,
            period_steps=period_steps,
        )


class _Asked(Input):
    def __init__(self, *, keeper: BatchKeeper, worker: int) -> None:
        super().__init__(first=0, batches=0)
        self._keeper, self._worker = keeper, worker

    def has(self, number: int) -> bool:
        batch = self._keeper.get(number, worker=self._worker)
        assert batch in (None, number)
        return batch is not None


def test_a_batch_stays_until_the_chief_has_seen_its_ticket_closed() -> None:
    """If the server is lost before, that ticket is handed out again."""
    keeper = BatchKeeper(itertools.count(), until_seen=True)
    for number in range(6):
        assert keeper.get(number, worker=1) == number
    seen = keeper.closed
    assert seen == 4
    assert keeper.get(6, worker=1) == 6
    assert [keeper.get(number, worker=2) for number in range(2)] == [0, 1]
    keeper.drop_seen(seen)
    assert keeper.get(3, worker=3) is None
    assert keeper.get(4, worker=3) == 4


def test_what_the_chief_has_not_seen_closed_is_asked_for_again_when_the_server_returns() -> None:
    keeper = BatchKeeper(itertools.count(), until_seen=True)
    for number in range(6):
        assert keeper.get(number, worker=1) == number
    before = keeper.closed
    keeper.on_server_return()
    keeper.drop_seen(before)
    assert [keeper.get(number, worker=2) for number in range(6)] == list(range(6))
    assert keeper.closed == before + 4
    keeper.drop_seen(keeper.closed)
    assert keeper.get(3, worker=3) is None
    assert keeper.get(4, worker=3) == 4
