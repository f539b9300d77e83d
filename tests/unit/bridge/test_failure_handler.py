"""Tasks that are lost while TensorFlow connects the cluster anew, or at the same moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.bridge.closures import failure_handler
from tfps.bridge.closures.closure_error import NOT_A_MEMBER
from tfps.bridge.closures.failure_handler import FailureHandler, NoServerReturn, UnknownHealth

WORKERS = {0: "127.0.0.1:10", 1: "127.0.0.1:11"}
SERVERS = {0: "127.0.0.1:20"}
LOST = tf.errors.UnavailableError(
    None, None, "Additional GRPC error information from remote target /job:ps/replica:0/task:0"
)
LOST_WORKER = tf.errors.UnavailableError(
    None, None, "Additional GRPC error information from remote target /job:worker/replica:0/task:1"
)
DEADLINE_S = 30.0


class Machines:
    """All tasks of a cluster, and the reports about them to TensorFlow."""

    def __init__(self) -> None:
        self.there = {*WORKERS.values(), *SERVERS.values()}
        self.error: Exception | None = None
        self.refused = threading.Event()
        self.connected: list[list[int]] = []  # the workers, each time

    def update_server_def(self, definition: Any) -> None:
        if self.error is not None:
            self.refused.set()
            raise self.error
        self.connected.append(
            [task for job in definition.cluster.job if job.name == "worker" for task in job.tasks]
        )


class Health(UnknownHealth):
    """Notes the workers that get no more work, and those whose restart it is asked about."""

    def __init__(self) -> None:
        self.lost: list[int] = []
        self.asked: list[int] = []
        self.all_fit = True

    def is_incompatible(self, worker: int) -> bool:
        self.asked.append(worker)
        return not self.all_fit

    def mark_worker_lost(self, worker: int) -> bool:
        self.lost.append(worker)
        return True


class Returns(NoServerReturn):
    """A server that is lost is brought back."""

    def is_caused_by_server_loss(self, error: BaseException | None = None) -> bool:
        return error is LOST


class CountedClosures(NoServerReturn):
    """The number of closures that have begun and not ended."""

    running = 0

    def enter(self) -> None:
        self.running += 1

    def leave(self) -> None:
        self.running -= 1


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    machines = Machines()
    monkeypatch.setattr(failure_handler, "accepts_connections", lambda a: a in machines.there)
    monkeypatch.setattr(failure_handler, "POLL_INTERVAL_S", 0.01)
    private = "tfps.bridge.closures.failure_handler.private"
    monkeypatch.setattr(f"{private}.current_context", lambda: machines)
    return machines


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def handler(
    machines: Machines, health: Health, pool: ThreadPoolExecutor
) -> Iterator[FailureHandler]:
    """A handler that stops before the pool waits for its threads."""
    definition = tf.train.ServerDef()
    for name, tasks in (("worker", WORKERS), ("ps", SERVERS)):
        job = definition.cluster.job.add(name=name)
        for index, address in tasks.items():
            job.tasks[index] = address
    cluster = SimpleNamespace(
        closure_queue=SimpleNamespace(_cancellation_mgr=SimpleNamespace(is_cancelled=False)),
        _potential_ps_failures_lock=threading.Lock(),
        _num_ps=len(SERVERS),
        _record_and_ignore_transient_ps_failure=lambda _: False,
        _record_and_ignore_transient_timeouts=lambda _: False,
    )
    handler = FailureHandler(definition, cluster)
    handler.health = health
    yield handler
    handler.stop()
    handler._preemption_handler_thread.join()


def test_what_a_worker_ran_that_was_let_out_runs_again(handler: FailureHandler) -> None:
    """No task is lost: the handler waits neither for the worker nor for a server."""
    ran = list[Any]()

    def closure() -> None:
        raise tf.errors.InvalidArgumentError(None, None, f"assertion failed: [{NOT_A_MEMBER}] [3]")

    with handler.wait_on_failure(
        on_failure_fn=ran.append,
        on_transient_failure_fn=lambda: ran.append("again"),
        worker_device_name="/job:worker/replica:0/task:1",
    ):
        closure()
    assert ran == ["again"]
    assert handler.lost_workers == frozenset()


def test_what_fails_after_the_end_is_no_loss(
    handler: FailureHandler, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler looks for no worker, and writes nothing: the strategy was closed meanwhile."""
    failed = list[Exception]()

    def closure() -> None:
        with handler.wait_on_failure(failed.append, worker_device_name="/job:worker/task:1"):
            handler.stop()
            raise LOST

    with raises(tf.errors.CancelledError, "strategy", received="closed"):
        closure()
    assert (failed, handler.lost_workers, caplog.records) == ([], frozenset(), [])


def _lose_worker(handler: FailureHandler) -> None:
    """Run a closure that fails with worker 1; return when this worker is back."""
    with handler.wait_on_failure(worker_device_name="/job:worker/replica:0/task:1"):
        raise LOST_WORKER


def test_a_worker_that_does_not_fit_is_left_out_until_one_does(
    handler: FailureHandler, machines: Machines, health: Health, pool: ThreadPoolExecutor
) -> None:
    health.all_fit = False
    waiting = pool.submit(_lose_worker, handler)
    while len(health.asked) < 3:
        time.sleep(0.01)
    assert machines.connected == []  # nothing is connected anew for it
    assert handler.reconnect()  # for a server
    assert machines.connected == [[0]]
    assert handler.lost_workers == {1}
    health.all_fit = True
    waiting.result(DEADLINE_S)
    assert (machines.connected, handler.lost_workers) == ([[0], [0, 1]], frozenset())
    assert set(health.asked) == {1}  # those that take part are not asked


def test_a_thread_that_waits_for_its_worker_delays_no_server(
    handler: FailureHandler, machines: Machines, pool: ThreadPoolExecutor
) -> None:
    """A lost server returns once no closure runs, however long the worker stays away."""
    handler.servers = servers = CountedClosures()
    machines.there.remove(WORKERS[1])
    running_on_recovery = list[int]()

    def lose_worker() -> None:
        with handler.wait_on_failure(
            on_recovery_fn=lambda: running_on_recovery.append(servers.running),
            worker_device_name="/job:worker/replica:0/task:1",
        ):
            raise LOST_WORKER

    waiting = pool.submit(lose_worker)
    while handler.lost_workers != {1}:
        time.sleep(0.01)
    for _ in range(30):  # the thread is woken each 0.01 s, and looks for its worker
        assert servers.running == 0
        time.sleep(0.01)
    machines.there.add(WORKERS[1])
    waiting.result(DEADLINE_S)
    assert (running_on_recovery, servers.running) == ([1], 0)


def test_a_server_that_comes_back_is_lost_while_a_worker_is_taken_in(
    handler: FailureHandler, machines: Machines, pool: ThreadPoolExecutor
) -> None:
    """The worker is tried again."""
    handler.servers, machines.error = Returns(), LOST
    waiting = pool.submit(_lose_worker, handler)
    assert machines.refused.wait(DEADLINE_S)
    machines.error = None
    waiting.result(DEADLINE_S)
    assert machines.connected == [[0, 1]]


def test_a_server_is_lost_for_good_while_a_worker_is_taken_in(
    handler: FailureHandler, machines: Machines, pool: ThreadPoolExecutor
) -> None:
    """The thread of the worker raises the error."""
    machines.error = LOST
    assert pool.submit(_lose_worker, handler).exception(DEADLINE_S) is LOST
    machines.error = None
    while handler.lost_workers:
        time.sleep(0.01)
    assert machines.connected == [[0, 1]]


def test_a_worker_is_lost_for_good_together_with_a_server(
    handler: FailureHandler, machines: Machines, health: Health
) -> None:
    """No closure has reported the worker, since each ended because of the server."""
    machines.there.remove(WORKERS[1])
    assert handler.reconnect()
    assert machines.connected == [[0]]
    assert health.lost == [1]
    assert handler.excluded_workers == {1}
    machines.there.add(WORKERS[1])
    while handler.excluded_workers:  # the handler's own thread takes it in
        time.sleep(0.01)
    assert machines.connected == [[0], [0, 1]]
