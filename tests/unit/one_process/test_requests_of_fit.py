"""Replies of servers to requests of `fit`: in time, repeated, late, of evicted workers.

Two weights, one on each server and each with an optimizer call of its own, that grow by the
gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tfps
from tests.unit.one_process.jobs import DEADLINE_S, FitJob, Jobs, waits
from tests.unit.one_process.requests import Requests, ServerReply
from tests.unit.one_process.service_loops import ServiceLoops
from tests.unit.one_process.unit_steps import BATCH
from tfps.consistency.ledger import MAX_CALLS, NO_TICKET, Status
from tfps.runtime.message.request_header import SLOTS
from tfps.transport.message import Kind


@pytest.fixture(scope="module")
def loops() -> dict[FitJob, ServiceLoops]:
    """The loops that the servers of each job run for connections."""
    return {}


@pytest.fixture(params=["calls", "service loops"])
def fit_job(
    fit_jobs: Jobs[FitJob], loops: dict[FitJob, ServiceLoops], request: pytest.FixtureRequest
) -> Iterator[Callable[..., FitJob]]:
    """Their servers are asked by calls, or over connections with a loop for each."""

    def get(mode: Any, **options: Any) -> FitJob:
        job = fit_jobs(mode, **options)
        if request.param == "service loops":
            if job not in loops:
                loops[job] = ServiceLoops(job.strategy)
            job.requests.carrier = loops[job]
        return job

    yield get
    for job, served in loops.items():
        job.requests.carrier = job.strategy.runtime.data_plane.carrier
        served.close()


@pytest.fixture
def job(fit_job: Callable[..., FitJob]) -> Iterator[FitJob]:
    """Two optimizer calls, applied as they come."""
    job = fit_job(tfps.Asynchronous(), calls=2)
    yield job
    job.end()


def test_what_servers_serve(job: FitJob) -> None:
    for server in range(2):
        assert job.requests.kinds(server) == {Kind.JOIN, Kind.PUSH, Kind.LEAVE}
        assert job.requests.calls(server) == [0, 1]


@pytest.mark.parametrize("kind", [Kind.JOIN, Kind.PUSH])
def test_a_header_is_taken_apart_at_once(job: FitJob, kind: Kind) -> None:
    """A slice of its own for each field costs four operations, in every request."""
    assert job.requests.operations(kind)["StridedSlice"] == 0


@pytest.mark.rare
def test_a_worker_looks_at_the_cells_of_others_alone(fit_job: Callable[..., FitJob]) -> None:
    """Entering a round reads the cells of the others, not a copy of the ledger."""
    job = fit_job(tfps.Synchronous(), calls=2)
    assert job.requests.operations(Kind.ENTER_ROUND)["StridedSlice"] == 0


def test_a_push_is_applied_and_brings_the_next_ticket(job: FitJob) -> None:
    first = job.requests.open_tickets(3)
    joined = job.join(0)
    assert joined.ticket == first
    before = job.weight(0), job.weight(1)
    own = job.push(0, ticket=first, call=0)
    assert (own.status, own.version, own.weight) == (Status.OK, joined.version + 1, before[0] + 1)
    assert own.ticket == NO_TICKET  # the last call of a step brings it
    last = job.push(0, ticket=first, call=1)
    assert (last.status, last.ticket) == (Status.OK, first + 1)
    other = job.push(0, ticket=first, server=1, call=1, gradient=2.0)
    assert (other.status, other.ticket) == (Status.OK, NO_TICKET)  # server 0 hands them out
    assert (job.weight(0), job.weight(1)) == (before[0] + 1, before[1] + 2)


@pytest.mark.parametrize(("server", "call"), [(0, 0), (1, 1)])
def test_a_push_that_comes_again_is_applied_once(job: FitJob, server: int, call: int) -> None:
    ticket = job.requests.open_tickets(2)
    job.join(0)
    assert job.push(0, ticket=ticket, server=server, call=call).status is Status.OK
    before, counted = job.weight(server), job.requests.counted("DUPLICATES", server=server)
    again = job.push(0, ticket=ticket, server=server, call=call)
    assert again.status is Status.DUPLICATE
    assert job.weight(server) == before
    assert job.requests.counted("DUPLICATES", server=server) == counted + 1


def test_what_an_evicted_worker_sends_changes_nothing(job: FitJob) -> None:
    """Its ticket goes to another worker, whose push the server has not seen yet."""
    ticket = job.requests.open_tickets(1)
    assert job.join(0).ticket == ticket
    job.requests.evict(0, job.incarnations[0])
    before = job.weight(0), job.weight(1)
    refused = [job.push(0, ticket=ticket, server=server, call=server) for server in range(2)]
    assert [reply.status for reply in refused] == [Status.EVICTED] * 2
    assert refused[0].ticket == NO_TICKET
    assert (job.weight(0), job.weight(1)) == before
    assert job.join(1).ticket == ticket
    assert job.push(1, ticket=ticket, call=0).status is Status.OK
    assert job.weight(0) == before[0] + 1


def test_another_worker_repeats_what_was_applied_in_part(job: FitJob) -> None:
    """Server 1 had the push before its worker was lost: there it is a duplicate."""
    ticket = job.requests.open_tickets(1)
    job.join(0)
    before = job.weight(0), job.weight(1)
    assert job.push(0, ticket=ticket, server=1, call=1).status is Status.OK
    job.requests.evict(0, job.incarnations[0])
    assert job.join(1).ticket == ticket
    assert job.push(1, ticket=ticket, server=0, call=0).status is Status.OK
    assert job.push(1, ticket=ticket, server=1, call=1).status is Status.DUPLICATE
    assert (job.weight(0), job.weight(1)) == (before[0] + 1, before[1] + 1)


def test_an_older_incarnation_is_refused(job: FitJob) -> None:
    ticket = job.requests.open_tickets(1)
    job.join(0)
    older = job.incarnations[0]
    job.join(0)
    assert job.push(0, ticket=ticket, incarnation=older).status is Status.EVICTED
    again = job.ask(Kind.JOIN, worker=0, incarnation=older)
    assert (again.status, again.ticket) == (Status.EVICTED, NO_TICKET)
    assert job.push(0, ticket=ticket).status is Status.OK


@pytest.mark.parametrize("fit_job", ["calls"], indirect=True)  # `direct` ends the connection
@pytest.mark.parametrize("field", ["plan", "protocol"])
def test_a_request_for_another_program_is_refused(job: FitJob, field: str) -> None:
    ticket = job.requests.open_tickets(1)
    job.join(0)
    before = job.weight(0)
    other: dict[str, int] = {field: 12345}
    assert job.push(0, ticket=ticket, **other).status is Status.REPLAN
    assert job.weight(0) == before


def test_a_ticket_is_closed_by_the_request_after_it(job: FitJob) -> None:
    ticket = job.requests.open_tickets(1)
    job.join(0)
    for call in range(2):
        job.push(0, ticket=ticket, call=call)
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
    assert job.push(0, ticket=ticket).status is Status.EVICTED  # it takes part no more


@pytest.mark.quick("calls")
def test_an_evaluation_closes_tickets_without_a_push(fit_job: Callable[..., FitJob]) -> None:
    job = fit_job(tfps.Asynchronous(), calls=2)
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


@pytest.mark.slow
def test_a_bound_holds_up_the_fast_until_the_slow_push_or_leave(
    fit_job: Callable[..., FitJob],
) -> None:
    """The last push of a step lets the fast worker go on."""
    job, last = fit_job(tfps.BoundedStaleness(1), calls=2), 1
    ticket = job.requests.open_tickets(8)
    clocks = [job.join(worker).clock for worker in range(2)]
    assert clocks[0] == clocks[1]
    with ThreadPoolExecutor(2) as pool:

        def push(worker: int, ticket: int, clock: int) -> Future[ServerReply]:
            assert job.push(worker, ticket=ticket, clock=clock).status is Status.OK
            return pool.submit(job.push, worker, ticket=ticket, call=last, clock=clock)

        assert push(0, ticket, clocks[0]).result(DEADLINE_S).status is Status.OK
        fast = push(0, ticket + 2, clocks[0] + 1)
        assert waits(fast)
        assert push(1, ticket + 1, clocks[1]).result(DEADLINE_S).status is Status.OK
        assert fast.result(DEADLINE_S).status is Status.OK
        again = push(0, ticket + 3, clocks[0] + 2)
        assert waits(again)
        job.requests.evict(1, job.incarnations[1])
        assert again.result(DEADLINE_S).status is Status.OK
    job.end()


@pytest.mark.quick("calls")
def test_a_round_waits_for_all_and_applies_the_mean(fit_job: Callable[..., FitJob]) -> None:
    """The rounds are of one optimizer call after the other."""
    job = fit_job(tfps.Synchronous(), calls=2)
    ticket = job.requests.open_tickets(4)
    at = _enter(job)
    before = job.weight(0)
    with ThreadPoolExecutor(2) as pool:
        for call, (position, upcoming) in enumerate([(at, at + 1), (at + 1, at + MAX_CALLS)]):
            options = {"call": call, "base_version": position}
            first = pool.submit(job.push, 0, ticket=ticket, gradient=1.0, **options)
            assert waits(first)
            assert job.weight(0) == before + 3 * call
            last = job.push(1, ticket=ticket + 1, gradient=5.0, **options)
            assert (last.status, last.version) == (Status.OK, upcoming)
            assert first.result(DEADLINE_S)[:2] == last[:2]
            assert job.weight(0) == before + 3  # the other call updates the other server
        alone = pool.submit(job.push, 0, ticket=ticket + 2, base_version=at + MAX_CALLS)
        assert waits(alone)
        job.requests.evict(1, job.incarnations[1])
        assert alone.result(DEADLINE_S).weight == before + 4
    evicted = job.push(1, ticket=ticket + 3, base_version=at + MAX_CALLS)
    assert evicted.status is Status.EVICTED
    job.end()


@pytest.mark.rare
def test_servers_count_alike_at_rest_what_one_of_them_has_taken(
    fit_job: Callable[..., FitJob],
) -> None:
    """A worker dies when one server has its gradient, and its ticket is repeated by the other."""
    job = fit_job(tfps.Synchronous())
    ticket = job.requests.open_tickets(4)
    at = _enter(job, servers=(0, 1))

    def counts(name: str = "VERSION") -> list[int]:
        return [job.requests.counted(name, server=server) for server in range(2)]

    before, apart = counts(), counts("APART")
    with ThreadPoolExecutor(2) as pool:
        options = {"ticket": ticket, "base_version": at}
        first = [pool.submit(job.push, 0, server=server, **options) for server in range(2)]
        assert all(map(waits, first))
        assert job.push(1, ticket=ticket + 1, base_version=at).status is Status.OK
        job.requests.evict(1, job.incarnations[1])
        assert {each.result(DEADLINE_S).status for each in first} == {Status.OK}
    again = {"ticket": ticket + 1, "base_version": at + MAX_CALLS}
    replies = [job.push(0, server=server, **again).status for server in range(2)]
    assert replies == [Status.DUPLICATE, Status.OK]
    assert np.subtract(counts(), before).tolist() == [1, 2]
    job.end()
    job.train()
    assert len(set(counts())) == 1
    assert np.subtract(counts("APART"), apart).tolist() == [1, 0]


@pytest.mark.slow
def test_who_is_late_for_a_round_has_pushed_nothing(fit_job: Callable[..., FitJob]) -> None:
    job = fit_job(tfps.Synchronous(backup_workers=1))
    ticket = job.requests.open_tickets(4)
    at = _enter(job)
    before, dropped = job.weight(0), job.requests.counted("DROPPED")
    assert job.push(0, ticket=ticket, base_version=at)[:2] == (Status.OK, at + MAX_CALLS)
    late = job.push(1, ticket=ticket + 1, base_version=at)
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
    assert job.push(1, ticket=ticket + 2, base_version=at + MAX_CALLS).status is Status.OK
    job.end()


@pytest.mark.rare
def test_a_push_that_is_too_stale_is_dropped(fit_job: Callable[..., FitJob]) -> None:
    """Its ticket is closed all the same."""
    job = fit_job(tfps.Asynchronous(), drop_above=1)
    ticket = job.requests.open_tickets(5)
    at = job.join(0).version
    before, dropped = job.weight(0), job.requests.counted("DROPPED")
    pushed = [job.push(0, ticket=ticket + number, base_version=at) for number in range(4)]
    assert [reply.staleness for reply in pushed] == [0, 1, 2, 2]
    assert [reply.status for reply in pushed] == [Status.OK] * 2 + [Status.LATE] * 2
    assert [reply.ticket for reply in pushed] == [ticket + number for number in range(1, 5)]
    assert job.weight(0) == before + 2
    assert job.requests.counted("DROPPED") == dropped + 2
    assert job.push(0, ticket=ticket + 3, base_version=at).status is Status.DUPLICATE
    assert job.push(0, ticket=ticket + 4, base_version=at + 2).weight == before + 3
    job.end()


def _enter(job: FitJob, *, servers: tuple[int, ...] = (0,)) -> int:
    """Both workers enter the next round of some servers; its position."""
    at, other = [job.join(worker, servers=servers).version for worker in range(2)]
    assert other == at
    number = -(-at // MAX_CALLS)  # what those before them have begun is not theirs
    entered = [
        job.ask(
            Kind.ENTER_ROUND,
            server=server,
            worker=worker,
            incarnation=job.incarnations[worker],
            base_version=number,
        )
        for worker in range(2)
        for server in servers
    ]
    assert {reply[:2] for reply in entered} == {(Status.OK, number * MAX_CALLS)}
    return number * MAX_CALLS


@pytest.mark.quick("calls")
def test_workers_that_update_themselves_pull_the_optimizers_state(
    fit_job: Callable[..., FitJob],
) -> None:
    job = fit_job(tfps.LocalSteps(2))
    assert Kind.PULL in job.requests.kinds(0)
    ticket = job.requests.open_tickets(1)
    job.join(0)
    pulled = job.ask(Kind.PULL, call=SLOTS, worker=0, incarnation=job.incarnations[0])
    assert pulled.status is Status.OK
    before = job.weight(0)
    moved = job.push(0, ticket=ticket, gradient=3.0)
    assert moved.status is Status.OK
    assert job.weight(0) == before + 3  # the only worker: all that it has moved
    job.end()
