"""What servers answer to the requests of a program of `fit`: in time, again, late, of the evicted.

Two weights, one on each server and each with an optimizer call of its own, that grow by the
gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

import numpy as np
import pytest

import tfps
from tests.unit.one_process.requests import Answer, Requests
from tests.unit.one_process.unit_steps import BATCH, Counters, counters, fit
from tfps.consistency.ledger import MAX_CALLS, NO_TICKET, Status
from tfps.runtime.message.request_header import SLOTS
from tfps.testing import OneProcess
from tfps.transport.message import Kind

WAITS_S, DEADLINE_S = 0.3, 30.0


class Job:
    """A strategy that has trained one program, which the test goes on with by hand."""

    def __init__(self, cluster: OneProcess, mode: Any, *, calls: int) -> None:
        self.strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
        self.model: Counters = counters(self.strategy, calls=calls)
        fit(self.model, steps=2)
        self.requests = Requests(self.strategy, has=Kind.JOIN)
        self.ask = self.requests.ask
        self.incarnations = [0, 0]

    def weight(self, server: int) -> float:
        """As it lies on a server."""
        return self.model.counts()[server]

    def join(self, worker: int, *, servers: tuple[int, ...] = (0, 1)) -> Answer:
        """Enter anew on servers; what the first of them says."""
        incarnation = self.incarnations[worker] = self.requests.incarnation(worker)
        answers = [
            self.ask(Kind.JOIN, server=server, worker=worker, incarnation=incarnation)
            for server in servers
        ]
        assert all(answer.status is Status.OK for answer in answers)
        return answers[0]

    def push(self, worker: int, ticket: int, **options: Any) -> Answer:
        options = {"gradient": 1.0, "step_examples": BATCH, **options}
        incarnation = options.pop("incarnation", self.incarnations[worker])
        return self.ask(Kind.PUSH, worker=worker, incarnation=incarnation, ticket=ticket, **options)

    def end(self) -> None:
        for worker, incarnation in enumerate(self.incarnations):
            self.requests.evict(worker, incarnation)


@pytest.fixture(scope="module")
def jobs(cluster: OneProcess) -> Iterator[Callable[..., Job]]:
    made: dict[tuple[Any, int], Job] = {}

    def get(mode: Any, calls: int = 1) -> Job:
        if (mode, calls) not in made:
            made[mode, calls] = Job(cluster, mode, calls=calls)
        return made[mode, calls]

    yield get
    for job in made.values():
        job.strategy.close()


@pytest.fixture
def job(jobs: Callable[..., Job]) -> Iterator[Job]:
    """Two optimizer calls, applied as they come."""
    job = jobs(tfps.Asynchronous(), 2)
    yield job
    job.end()


def _waits(future: Future[Any]) -> bool:
    done, _ = wait_for([future], timeout=WAITS_S)
    return not done


def test_what_servers_serve(job: Job) -> None:
    for server in range(2):
        assert job.requests.kinds(server) == {Kind.JOIN, Kind.PUSH, Kind.LEAVE}
        assert job.requests.calls(server) == [0, 1]


def test_a_push_is_applied_and_brings_the_next_ticket(job: Job) -> None:
    first = job.requests.open_tickets(3)
    joined = job.join(0)
    assert joined.ticket == first
    before = job.weight(0), job.weight(1)
    own = job.push(0, first, call=0)
    assert (own.status, own.version, own.weight) == (Status.OK, joined.version + 1, before[0] + 1)
    assert own.ticket == NO_TICKET  # the last call of a step brings it
    last = job.push(0, first, call=1)
    assert (last.status, last.ticket) == (Status.OK, first + 1)
    other = job.push(0, first, server=1, call=1, gradient=2.0)
    assert (other.status, other.ticket) == (Status.OK, NO_TICKET)  # server 0 hands them out
    assert (job.weight(0), job.weight(1)) == (before[0] + 1, before[1] + 2)


@pytest.mark.parametrize(("server", "call"), [(0, 0), (1, 1)])
def test_a_push_that_comes_again_is_applied_once(job: Job, server: int, call: int) -> None:
    ticket = job.requests.open_tickets(2)
    job.join(0)
    assert job.push(0, ticket, server=server, call=call).status is Status.OK
    before, counted = job.weight(server), job.requests.counted("DUPLICATES", server=server)
    again = job.push(0, ticket, server=server, call=call)
    assert again.status is Status.DUPLICATE
    assert job.weight(server) == before
    assert job.requests.counted("DUPLICATES", server=server) == counted + 1


def test_what_an_evicted_worker_sends_changes_nothing(job: Job) -> None:
    """Its ticket goes to another worker, whose push the server has not seen yet."""
    ticket = job.requests.open_tickets(1)
    assert job.join(0).ticket == ticket
    job.requests.evict(0, job.incarnations[0])
    before = job.weight(0), job.weight(1)
    refused = [job.push(0, ticket, server=server, call=server) for server in range(2)]
    assert [answer.status for answer in refused] == [Status.EVICTED] * 2
    assert refused[0].ticket == NO_TICKET
    assert (job.weight(0), job.weight(1)) == before
    assert job.join(1).ticket == ticket
    assert job.push(1, ticket, call=0).status is Status.OK
    assert job.weight(0) == before[0] + 1


def test_another_worker_repeats_what_was_applied_in_part(job: Job) -> None:
    """Server 1 had the push before its worker was lost: there it is a duplicate."""
    ticket = job.requests.open_tickets(1)
    job.join(0)
    before = job.weight(0), job.weight(1)
    assert job.push(0, ticket, server=1, call=1).status is Status.OK
    job.requests.evict(0, job.incarnations[0])
    assert job.join(1).ticket == ticket
    assert job.push(1, ticket, server=0, call=0).status is Status.OK
    assert job.push(1, ticket, server=1, call=1).status is Status.DUPLICATE
    assert (job.weight(0), job.weight(1)) == (before[0] + 1, before[1] + 1)


def test_an_older_incarnation_is_refused(job: Job) -> None:
    ticket = job.requests.open_tickets(1)
    job.join(0)
    older = job.incarnations[0]
    job.join(0)
    assert job.push(0, ticket, incarnation=older).status is Status.EVICTED
    again = job.ask(Kind.JOIN, worker=0, incarnation=older)
    assert (again.status, again.ticket) == (Status.EVICTED, NO_TICKET)
    assert job.push(0, ticket).status is Status.OK


@pytest.mark.parametrize("field", ["plan", "protocol"])
def test_a_request_for_another_program_is_refused(job: Job, field: str) -> None:
    ticket = job.requests.open_tickets(1)
    job.join(0)
    before = job.weight(0)
    other: dict[str, int] = {field: 12345}
    assert job.push(0, ticket, **other).status is Status.REPLAN
    assert job.weight(0) == before


def test_a_ticket_is_closed_by_the_request_after_it(job: Job) -> None:
    ticket = job.requests.open_tickets(1)
    job.join(0)
    for call in range(2):
        job.push(0, ticket, call=call)
    before = job.strategy.stats().examples_seen
    left = job.ask(
        Kind.LEAVE,
        worker=0,
        incarnation=job.incarnations[0],
        acked_ticket=ticket,
        examples=BATCH,
        closed_steps=1,
    )
    assert left.status is Status.OK
    assert job.strategy.stats().examples_seen == before + BATCH
    assert job.push(0, ticket).status is Status.EVICTED  # it takes part no more


def test_an_evaluation_closes_tickets_without_a_push(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.Asynchronous(), 2)
    data = np.zeros([2 * BATCH, 1], "float32")
    job.model.evaluate(data, data, batch_size=BATCH, verbose=0)
    requests = Requests(job.strategy, has=Kind.JOIN)
    assert requests.kinds(0) == {Kind.JOIN, Kind.FINISH, Kind.LEAVE}
    assert requests.kinds(1) == {Kind.JOIN, Kind.LEAVE}  # it hands out no tickets
    first, incarnation = requests.open_tickets(2), requests.incarnation(0)
    joined = requests.ask(Kind.JOIN, worker=0, incarnation=incarnation)
    assert (joined.status, joined.ticket) == (Status.OK, first)
    done = requests.ask(Kind.FINISH, worker=0, incarnation=incarnation, ticket=first)
    assert (done.status, done.ticket) == (Status.OK, first + 1)
    assert done.version == joined.version
    requests.evict(0, incarnation)
    late = requests.ask(Kind.FINISH, worker=0, incarnation=incarnation, ticket=first + 1)
    assert (late.status, late.ticket) == (Status.EVICTED, NO_TICKET)


def test_a_bound_holds_up_the_fast_until_the_slow_push_or_leave(
    jobs: Callable[..., Job],
) -> None:
    job = jobs(tfps.BoundedStaleness(1))
    ticket = job.requests.open_tickets(8)
    clocks = [job.join(worker).clock for worker in range(2)]
    assert clocks[0] == clocks[1]
    with ThreadPoolExecutor(2) as pool:
        assert job.push(0, ticket, clock=clocks[0]).status is Status.OK
        fast = pool.submit(job.push, 0, ticket + 2, clock=clocks[0] + 1)
        assert _waits(fast)
        assert job.push(1, ticket + 1, clock=clocks[1]).status is Status.OK
        assert fast.result(DEADLINE_S).status is Status.OK
        again = pool.submit(job.push, 0, ticket + 3, clock=clocks[0] + 2)
        assert _waits(again)
        job.requests.evict(1, job.incarnations[1])
        assert again.result(DEADLINE_S).status is Status.OK
    job.end()


def test_a_round_waits_for_all_and_applies_the_mean(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.Synchronous())
    ticket = job.requests.open_tickets(4)
    with ThreadPoolExecutor(2) as pool:
        at = _enter(job)
        before = job.weight(0)
        first = pool.submit(job.push, 0, ticket, base_version=at, gradient=1.0)
        assert _waits(first)
        assert job.weight(0) == before
        last = job.push(1, ticket + 1, base_version=at, gradient=5.0)
        assert (last.status, last.version) == (Status.OK, at + MAX_CALLS)
        assert last.weight == before + 3
        assert first.result(DEADLINE_S)[:2] == last[:2]
        alone = pool.submit(job.push, 0, ticket + 2, base_version=at + MAX_CALLS)
        assert _waits(alone)
        job.requests.evict(1, job.incarnations[1])
        assert alone.result(DEADLINE_S).weight == before + 4
    evicted = job.push(1, ticket + 3, base_version=at + MAX_CALLS)
    assert evicted.status is Status.EVICTED
    job.end()


def test_who_is_late_for_a_round_has_pushed_nothing(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.Synchronous(backup_workers=1))
    ticket = job.requests.open_tickets(4)
    at = _enter(job)
    before, dropped = job.weight(0), job.requests.counted("DROPPED")
    assert job.push(0, ticket, base_version=at)[:2] == (Status.OK, at + MAX_CALLS)
    late = job.push(1, ticket + 1, base_version=at)
    assert late[:2] == (Status.LATE, at + MAX_CALLS)
    assert job.weight(0) == late.weight == before + 1
    assert job.requests.counted("DROPPED") == dropped + 1
    awaited = job.ask(
        Kind.AWAIT_ROUND,
        worker=1,
        incarnation=job.incarnations[1],
        base_version=at // MAX_CALLS + 1,
    )
    assert awaited[:2] == (Status.OK, at + MAX_CALLS)
    assert job.push(1, ticket + 2, base_version=at + MAX_CALLS).status is Status.OK
    job.end()


def _enter(job: Job) -> int:
    """Both workers enter the round that server 0 is at; its position."""
    at, other = [job.join(worker, servers=(0,)).version for worker in range(2)]
    assert other == at
    entered = [
        job.ask(
            Kind.ENTER_ROUND,
            worker=worker,
            incarnation=job.incarnations[worker],
            base_version=at // MAX_CALLS,
        )
        for worker in range(2)
    ]
    assert [answer[:2] for answer in entered] == [(Status.OK, at)] * 2
    return at


def test_workers_that_update_themselves_pull_the_optimizers_state(
    jobs: Callable[..., Job],
) -> None:
    job = jobs(tfps.LocalSteps(2))
    assert Kind.PULL in job.requests.kinds(0)
    ticket = job.requests.open_tickets(1)
    job.join(0)
    pulled = job.ask(Kind.PULL, call=SLOTS, worker=0, incarnation=job.incarnations[0])
    assert pulled.status is Status.OK
    before = job.weight(0)
    moved = job.push(0, ticket, gradient=3.0)
    assert moved.status is Status.OK
    assert job.weight(0) == before + 3  # the only worker: all that it has moved
    job.end()
