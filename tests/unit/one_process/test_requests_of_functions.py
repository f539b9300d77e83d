"""Replies of servers to the requests of a scheduled function, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.one_process.jobs import DEADLINE_S, FunctionJob, Jobs, waits
from tests.unit.one_process.requests import Requests, ServerReply
from tests.unit.one_process.sent_requests import note_requests
from tfps.consistency.applied_window import WRITE_BACK, key_of_function
from tfps.consistency.ledger import MAX_CALLS, Status
from tfps.transport.message import Kind


@pytest.mark.parametrize("server", [0, 1])
def test_pushes_are_applied_as_they_come(function_jobs: Jobs[FunctionJob], server: int) -> None:
    """Each weight has an optimizer call of its own."""
    job = function_jobs(tfps.Asynchronous(), calls=2)
    assert job.requests.kinds(server) == {Kind.PULL, Kind.PUSH}
    assert job.requests.calls(server) == [0, 1]
    pulled, before = job.pull(0, server=server), job.weight(server)
    assert (pulled.status, pulled.weight) == (Status.OK, before)
    pushed = job.push(0, server=server, call=server, base_version=pulled.version)
    assert pushed[:2] == (Status.OK, pulled.version + 1)
    assert job.weight(server) == pushed.weight == before + 1
    assert job.push(0, server=server, call=server).weight == job.weight(server) == before + 2


MODES = [tfps.Asynchronous(), tfps.BoundedStaleness(1), tfps.Synchronous(), tfps.LocalSteps(2)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_push_that_comes_again_changes_nothing(
    function_jobs: Jobs[FunctionJob], mode: Any
) -> None:
    """Neither does one that came before it: a worker that hung may send it late."""
    job = function_jobs(mode) if mode == tfps.LocalSteps(2) else function_jobs(mode, calls=2)
    versions = job.strategy.stats().versions
    at = job.begin(0).version
    key = job.next_ticket()
    for position in range(3):
        before = job.weight(0)
        pushed = job.push(0, ticket=key + position, base_version=at)
        assert (pushed.status, pushed.weight) == (Status.OK, job.weight(0))
        assert job.weight(0) > before
        at = pushed.version
    weight, duplicates = job.weight(0), job.requests.counted("DUPLICATES")
    at = job.begin(1).version
    job.requests.evict(0, job.incarnations[0])
    for position in (0, 2, 1):
        again = job.push(1, ticket=key + position, base_version=at)
        assert (again.status, again.weight) == (Status.DUPLICATE, weight)
        at = again.version
    assert job.requests.counted("DUPLICATES") == duplicates + 3
    assert job.strategy.stats().versions == (versions[0] + 3, versions[1])
    assert job.push(1, ticket=key + 3, base_version=at).status is Status.OK
    job.end()


@pytest.fixture(scope="module")
def two_functions(function_jobs: Jobs[FunctionJob]) -> tuple[FunctionJob, FunctionJob]:
    """Two functions of one strategy that train weights of their own."""
    one = function_jobs(tfps.Synchronous(), calls=2)
    return one, FunctionJob(one.strategy)


@pytest.mark.rare
def test_what_a_round_went_on_without_counts_when_it_comes_again(
    two_functions: tuple[FunctionJob, FunctionJob],
) -> None:
    """A worker dies in a round in which no other one calls its optimizer."""
    one, other = two_functions
    at, _ = one.begin(0).version, other.begin(1)
    key, before = one.next_ticket(), one.weight(0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.push, 0, ticket=key, base_version=at)
        assert waits(first)
        one.requests.evict(0, one.incarnations[0])
        first.result(DEADLINE_S)
    at = other.push(1, base_version=at).version
    assert one.weight(0) == before
    again = one.push(1, incarnation=other.incarnations[1], ticket=key, base_version=at)
    assert (again.status, again.weight) == (Status.OK, before + 1)
    again = one.push(1, incarnation=other.incarnations[1], ticket=key, base_version=again.version)
    assert (again.status, again.weight) == (Status.DUPLICATE, before + 1)
    other.end()


def test_a_stale_push_says_how_stale(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.Asynchronous(), calls=2)
    at = job.pull(0).version
    histogram = job.strategy.stats().gradient_staleness_updates
    for _ in range(3):
        job.push(0, base_version=at)
    counted = job.strategy.stats().gradient_staleness_updates
    more = {key: counted[key] - histogram.get(key, 0) for key in counted}
    assert {key for key, number in more.items() if number} == {0, 1, 2}


def test_what_a_function_assigns_is_written_back(function_jobs: Jobs[FunctionJob]) -> None:
    strategy = function_jobs(tfps.Asynchronous(), calls=2).strategy
    with strategy.scope():
        total = keras.Variable(0.0, name="total")

    @tf.function
    def add() -> None:
        total.assign(total + 1.0)

    strategy.coordinator.schedule(add)
    strategy.coordinator.join()
    requests = Requests(strategy, has=Kind.PULL)
    assert float(total.numpy()) == 1
    assert requests.ask(Kind.PULL).weight == 1
    # These payloads keep nothing of the old value; a run that is repeated counts once.
    for number, value, expected in ((101, 2.5, 2.5), (101, 7.0, 2.5), (102, 6.0, 6.0)):
        key = key_of_function(number, WRITE_BACK)
        assert requests.ask(Kind.WRITE_BACK, gradient=value, ticket=key).status is Status.OK
        assert float(total.numpy()) == expected


@pytest.mark.repeats
def test_rows_of_a_table_are_looked_up_by_their_ids(function_jobs: Jobs[FunctionJob]) -> None:
    strategy = function_jobs(tfps.Asynchronous(), calls=2).strategy
    rows = np.arange(300_000 * 2, dtype="float32").reshape(300_000, 2)
    with strategy.scope():
        table = keras.layers.Embedding(
            len(rows), 2, embeddings_initializer=keras.initializers.Constant(0.0)
        )
        table.build()
        table.embeddings.assign(rows)
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build([table.embeddings])

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            found = table(tf.constant([5, 7, 5]))
            loss = tf.reduce_sum(found)
        optimizer.apply_gradients([(tape.gradient(loss, table.embeddings.value), table.embeddings)])
        return found

    found = strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    np.testing.assert_array_equal(found.fetch(), rows[[5, 7, 5]])
    # Of the two servers one holds the table, and it alone knows the request.
    requests = Requests(strategy, has=Kind.PUSH)
    holder = next(server for server in range(2) if Kind.LOOK_UP in requests.kinds(server))
    for row, gradient in ((5, 2), (6, 0), (7, 1)):
        before = strategy.stats()
        reply = requests.ask(Kind.LOOK_UP, server=holder, rows=[row])
        assert (reply.status, reply.weight) == (Status.OK, rows[row, 0] - gradient)
        after = strategy.stats()
        counted = np.subtract(after.exchanges, before.exchanges)
        np.testing.assert_array_equal(counted, [server == holder for server in range(2)])
        # How many rows and which one, as 32-bit numbers; two floats.
        assert after.bytes_pushed - before.bytes_pushed == 8
        assert after.bytes_pulled - before.bytes_pulled == 8


@pytest.mark.repeats
def test_a_bound_holds_up_the_fast(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.BoundedStaleness(1))
    clocks = [job.begin(worker).clock for worker in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert job.push(0, clock=clocks[0]).status is Status.OK
        fast = pool.submit(job.push, 0, clock=clocks[0] + 1)
        assert waits(fast)
        assert job.push(1, clock=clocks[1]).status is Status.OK
        assert fast.result(DEADLINE_S).status is Status.OK
        again = pool.submit(job.push, 0, clock=clocks[0] + 2)
        assert waits(again)
        job.requests.evict(1, job.incarnations[1])
        assert again.result(DEADLINE_S).status is Status.OK
    before = job.weight(0)
    assert job.push(1, clock=clocks[1] + 1).status is Status.EVICTED
    assert job.weight(0) == before
    assert job.begin(1).status is Status.OK
    job.end()


def test_an_older_incarnation_is_refused(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.BoundedStaleness(1))
    job.begin(0)
    older = job.incarnations[0]
    assert job.begin(0).status is Status.OK
    assert job.pull(0, incarnation=older).status is Status.EVICTED
    assert job.push(0, incarnation=older).status is Status.EVICTED
    job.end()


@pytest.mark.rare
def test_a_round_is_one_mean(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.Synchronous())
    at, before = job.begin(0).version, job.weight(0)
    assert job.begin(1).version == at
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(job.push, 0, base_version=at, gradient=1.0)
        assert waits(first)
        assert job.weight(0) == before
        last = job.push(1, base_version=at, gradient=5.0)
        assert last[:2] == (Status.OK, at + MAX_CALLS)
        assert first.result(DEADLINE_S).weight == last.weight == before + 3
        alone = pool.submit(job.push, 0, base_version=at + MAX_CALLS)
        assert waits(alone)
        job.requests.evict(1, job.incarnations[1])
        reply = alone.result(DEADLINE_S)
    assert reply.weight == before + 4
    dropped = job.requests.counted("DROPPED")
    assert job.push(1, base_version=reply.version).status is Status.EVICTED
    assert job.pull(1).status is Status.EVICTED
    assert job.requests.counted("DROPPED") == dropped + 1
    assert job.begin(1)[:2] == (Status.OK, reply.version)
    assert job.weight(0) == before + 4
    job.end()


@pytest.mark.rare
def test_two_functions_share_a_round(two_functions: tuple[FunctionJob, FunctionJob]) -> None:
    """Each updates its own weights with what it got, once all workers have pushed something."""
    jobs = two_functions
    before = [sum(job.model.counts()) for job in jobs]  # one of each lies on the server asked
    at, _ = [job.begin(worker).version for worker, job in enumerate(jobs)]

    def push(worker: int) -> ServerReply:
        return jobs[worker].push(worker, base_version=at, gradient=1.0 + worker)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(push, 0)
        assert waits(first)
        assert push(1)[:2] == (Status.OK, at + MAX_CALLS)
        assert first.result(DEADLINE_S)[:2] == (Status.OK, at + MAX_CALLS)
    assert [sum(job.model.counts()) for job in jobs] == [before[0] + 1, before[1] + 2]
    for job in jobs:
        job.end()


@pytest.mark.rare
def test_a_push_that_is_too_stale_is_dropped(function_jobs: Jobs[FunctionJob]) -> None:
    plain = function_jobs(tfps.Asynchronous(), calls=2)
    job = FunctionJob(plain.strategy, drop_above=1)
    at, before = job.pull(0).version, job.weight(0)
    dropped = job.requests.counted("DROPPED")
    pushed = [job.push(0, base_version=at) for _ in range(4)]
    assert [reply.staleness for reply in pushed] == [0, 1, 2, 2]
    assert [reply.status for reply in pushed] == [Status.OK] * 2 + [Status.LATE] * 2
    assert job.weight(0) == pushed[-1].weight == before + 2
    assert job.requests.counted("DROPPED") == dropped + 2
    assert job.push(0, base_version=at + 2).weight == before + 3


def test_who_is_expected_is_waited_for(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.Synchronous())
    job.strategy.runtime.members.expect([True, True])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(job.begin, 0)
        assert waits(first)
        assert job.begin(1)[:2] == first.result(DEADLINE_S)[:2]
    job.end()


@pytest.mark.rare
def test_who_is_expected_late_is_not_waited_for(
    make_strategy: Callable[..., tfps.ParameterServerStrategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chief has sent its request again, and the first one comes when all have ended."""
    sent = note_requests(monkeypatch)
    job = FunctionJob(make_strategy(tfps.Synchronous()), calls=2)
    sent.clear()
    job.strategy.runtime.members.expect([True, True])
    expectations = sent.copy()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(job.begin, 0)
        job.begin(1)
        first.result(DEADLINE_S)
        job.end()
        assert len(expectations) == len(job.strategy.runtime.servers)
        for late in expectations:
            late.send_again()
        assert pool.submit(job.begin, 0).result(DEADLINE_S).status is Status.OK
    job.end()


@pytest.mark.rare
def test_who_is_late_goes_on_with_fresh_parameters(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.Synchronous(backup_workers=1))
    at, before = job.begin(0).version, job.weight(0)
    job.begin(1)
    assert job.push(0, base_version=at)[:2] == (Status.OK, at + MAX_CALLS)
    late = job.push(1, base_version=at)
    assert late[:2] == (Status.LATE, at + MAX_CALLS)
    assert late.weight == job.weight(0) == before + 1
    awaited = job.ask(
        Kind.AWAIT_ROUND,
        worker=1,
        incarnation=job.incarnations[1],
        base_version=at // MAX_CALLS + 1,
    )
    assert awaited[:2] == (Status.OK, at + MAX_CALLS)
    assert job.push(1, base_version=at + MAX_CALLS).weight == before + 2
    job.end()


def test_local_steps_add_what_a_worker_has_moved(function_jobs: Jobs[FunctionJob]) -> None:
    job = function_jobs(tfps.LocalSteps(2))
    before = job.weight(0)
    job.begin(0)
    moved = job.push(0, gradient=4.0)
    assert moved.status is Status.OK
    assert before < job.weight(0) <= before + 4
    job.end()
