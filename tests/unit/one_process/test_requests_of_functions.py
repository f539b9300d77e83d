"""What servers answer to the requests of a scheduled function, in every mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.one_process.requests import Answer, Requests
from tests.unit.one_process.unit_steps import BATCH, Counters, counters, schedule
from tfps.consistency.ledger import MAX_CALLS, Status
from tfps.testing import OneProcess
from tfps.transport.message import Kind

WAITS_S, DEADLINE_S = 0.3, 30.0


class Job:
    """A strategy that has run one function twice, which the test goes on with by hand."""

    def __init__(self, cluster: OneProcess, mode: Any, *, calls: int) -> None:
        self.strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
        self.model: Counters = counters(self.strategy, calls=calls)
        schedule(self.strategy, self.model, steps=2)
        # The function's members have nothing more to run, and are let out before others come.
        self.strategy.runtime.membership.evict_all()
        self.requests = Requests(self.strategy, has=Kind.PUSH)
        self.ask = self.requests.ask
        self.incarnations = [0, 0]
        kinds = self.requests.kinds(0)
        self.first_kind = Kind.ENTER_ROUND if Kind.ENTER_ROUND in kinds else Kind.PULL

    def weight(self, server: int) -> float:
        """As it lies on a server."""
        return self.model.counts()[server]

    def begin(self, worker: int, **options: Any) -> Answer:
        """Pull as a new incarnation, which enters with that where the mode has members."""
        self.incarnations[worker] = self.requests.incarnation(worker)
        return self.pull(worker, **options)

    def pull(self, worker: int, **options: Any) -> Answer:
        incarnation = options.pop("incarnation", self.incarnations[worker])
        return self.ask(self.first_kind, worker=worker, incarnation=incarnation, **options)

    def push(self, worker: int, **options: Any) -> Answer:
        options = {"gradient": 1.0, "step_examples": BATCH, **options}
        incarnation = options.pop("incarnation", self.incarnations[worker])
        return self.ask(Kind.PUSH, worker=worker, incarnation=incarnation, **options)

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


def _waits(future: Future[Any]) -> bool:
    done, _ = wait_for([future], timeout=WAITS_S)
    return not done


@pytest.mark.parametrize("server", [0, 1])
def test_pushes_are_applied_as_they_come(jobs: Callable[..., Job], server: int) -> None:
    """The optimizer call of each weight is another one."""
    job = jobs(tfps.Asynchronous(), 2)
    assert job.requests.kinds(server) == {Kind.PULL, Kind.PUSH}
    assert job.requests.calls(server) == [0, 1]
    pulled, before = job.pull(0, server=server), job.weight(server)
    assert (pulled.status, pulled.weight) == (Status.OK, before)
    pushed = job.push(0, server=server, call=server, base_version=pulled.version)
    assert pushed[:2] == (Status.OK, pulled.version + 1)
    assert job.weight(server) == pushed.weight == before + 1
    # Without tickets nothing tells a request that comes again from another one.
    assert job.push(0, server=server, call=server).weight == job.weight(server) == before + 2


def test_a_stale_push_says_how_stale(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.Asynchronous(), 2)
    at = job.pull(0).version
    histogram = job.strategy.stats().gradient_staleness_updates
    for _ in range(3):
        job.push(0, base_version=at)
    counted = job.strategy.stats().gradient_staleness_updates
    more = {key: counted[key] - histogram.get(key, 0) for key in counted}
    assert {key for key, number in more.items() if number} == {0, 1, 2}


def test_what_a_function_assigns_is_written_back(cluster: OneProcess) -> None:
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
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
    # The change travels, so that those of two workers add up.
    assert requests.ask(Kind.WRITE_BACK, gradient=2.5).status is Status.OK
    assert float(total.numpy()) == 3.5
    strategy.close()


def test_rows_of_a_table_are_looked_up_by_their_ids(cluster: OneProcess) -> None:
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
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
        answer = requests.ask(Kind.LOOK_UP, server=holder, rows=[row])
        assert (answer.status, answer.weight) == (Status.OK, rows[row, 0] - gradient)
    strategy.close()


def test_a_bound_holds_up_the_fast(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.BoundedStaleness(1))
    clocks = [job.begin(worker).clock for worker in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert job.push(0, clock=clocks[0]).status is Status.OK
        fast = pool.submit(job.push, 0, clock=clocks[0] + 1)
        assert _waits(fast)
        assert job.push(1, clock=clocks[1]).status is Status.OK
        assert fast.result(DEADLINE_S).status is Status.OK
        again = pool.submit(job.push, 0, clock=clocks[0] + 2)
        assert _waits(again)
        job.requests.evict(1, job.incarnations[1])
        assert again.result(DEADLINE_S).status is Status.OK
    before = job.weight(0)
    assert job.push(1, clock=clocks[1] + 1).status is Status.EVICTED
    assert job.weight(0) == before
    assert job.begin(1).status is Status.OK
    job.end()


def test_an_older_incarnation_is_refused(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.BoundedStaleness(1))
    job.begin(0)
    older = job.incarnations[0]
    assert job.begin(0).status is Status.OK
    assert job.pull(0, incarnation=older).status is Status.EVICTED
    assert job.push(0, incarnation=older).status is Status.EVICTED
    job.end()


def test_a_round_is_one_mean(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.Synchronous())
    at, before = job.begin(0).version, job.weight(0)
    assert job.begin(1).version == at
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(job.push, 0, base_version=at, gradient=1.0)
        assert _waits(first)
        assert job.weight(0) == before
        last = job.push(1, base_version=at, gradient=5.0)
        assert last[:2] == (Status.OK, at + MAX_CALLS)
        assert first.result(DEADLINE_S).weight == last.weight == before + 3
        alone = pool.submit(job.push, 0, base_version=at + MAX_CALLS)
        assert _waits(alone)
        job.requests.evict(1, job.incarnations[1])
        answer = alone.result(DEADLINE_S)
    assert answer.weight == before + 4
    dropped = job.requests.counted("DROPPED")
    assert job.push(1, base_version=answer.version).status is Status.EVICTED
    assert job.pull(1).status is Status.EVICTED
    assert job.requests.counted("DROPPED") == dropped + 1
    assert job.begin(1)[:2] == (Status.OK, answer.version)
    assert job.weight(0) == before + 4
    job.end()


def test_two_functions_share_a_round(cluster: OneProcess) -> None:
    """Each updates its own weights with what it got, once all workers have pushed something."""
    strategy = tfps.ParameterServerStrategy(
        cluster.cluster_resolver, consistency=tfps.Synchronous()
    )
    models = [counters(strategy) for _ in range(2)]
    for model in models:
        schedule(strategy, model, steps=1)
    strategy.runtime.membership.evict_all()
    asked = [Requests(strategy, has=Kind.PUSH, number=number) for number in range(2)]
    before = [sum(model.counts()) for model in models]  # one of each lies on the server asked
    incarnations = [requests.incarnation(worker) for worker, requests in enumerate(asked)]
    entered = [
        requests.ask(Kind.ENTER_ROUND, worker=worker, incarnation=incarnations[worker])
        for worker, requests in enumerate(asked)
    ]
    at = entered[0].version

    def push(worker: int) -> Answer:
        return asked[worker].ask(
            Kind.PUSH,
            worker=worker,
            incarnation=incarnations[worker],
            base_version=at,
            gradient=1.0 + worker,
            step_examples=BATCH,
        )

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(push, 0)
        assert _waits(first)
        assert push(1)[:2] == (Status.OK, at + MAX_CALLS)
        assert first.result(DEADLINE_S)[:2] == (Status.OK, at + MAX_CALLS)
    assert [sum(model.counts()) for model in models] == [before[0] + 1, before[1] + 2]
    strategy.close()


def test_who_is_expected_is_waited_for(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.Synchronous())
    job.strategy.runtime.expect([True, True])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(job.begin, 0)
        assert _waits(first)
        assert job.begin(1)[:2] == first.result(DEADLINE_S)[:2]
    job.end()


def test_who_is_late_goes_on_with_fresh_parameters(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.Synchronous(backup_workers=1))
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


def test_local_steps_add_what_a_worker_has_moved(jobs: Callable[..., Job]) -> None:
    job = jobs(tfps.LocalSteps(2))
    before = job.weight(0)
    job.begin(0)
    moved = job.push(0, gradient=4.0)
    assert moved.status is Status.OK
    assert before < job.weight(0) <= before + 4
    job.end()
