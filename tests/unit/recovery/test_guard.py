"""The guard's reactions to verdicts, with probes and servers that the test plays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.cluster import ClusterSpec
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.guard import Guard
from tfps.recovery.probing.liveness import ProbePolicy
from tfps.recovery.probing.probe import Observation, Task
from tfps.recovery.probing.task_identity import TaskIdentity
from tfps.recovery.restarts.task_supervisor import register_supervisor, unregister_supervisor
from tfps.recovery.servers import new_addresses

POLICY = ProbePolicy(misses=2)
TIMEOUT_S = 0.2
NOBODY = TaskIdentity(None, is_gone=True)
REPLY = Observation(replied=True, silent=False, sent_s=1.0, judged_s=1.0)
SILENCE = Observation(replied=False, silent=True, sent_s=1.0, judged_s=1.0)
ELSEWHERE = "127.0.0.1:9"
REFUSAL = Observation(replied=False, silent=False, sent_s=1.0, judged_s=1.0)


class Runtime:
    """Two workers and a server that is told which worker is evicted."""

    workers, worker_addresses = 2, ("127.0.0.1:1", "127.0.0.1:2")
    processes: Mapping[Task, str] = {}

    def __init__(self) -> None:
        self.connections = self.members = self
        self.alive: set[Task] = set()
        self.moves: list[tuple[Task, str]] = []
        self.servers = [SimpleNamespace(index=0, address="127.0.0.1:3", lost=None)]
        self.hung_up: list[int] = []
        self.evicted: list[tuple[int, int]] = []
        self.reachable = True

    @property
    def cluster(self) -> ClusterSpec:
        return ClusterSpec(
            jobs={"chief": ("c:1",), "worker": self.worker_addresses, "ps": ("127.0.0.1:3",)}
        )

    def resolve(self) -> ClusterSpec:
        return self.cluster.with_address("worker", 1, ELSEWHERE)

    def report_alive(self, tasks: Collection[Task]) -> None:
        self.alive = set(tasks)

    def set_task_address(self, task: Task, address: str) -> None:
        self.worker_addresses = (self.worker_addresses[0], address)
        self.moves.append((task, address))

    def hang_up(self, server: int) -> None:
        self.hung_up.append(server)

    def latest_incarnation(self, slot: int) -> int:
        return 7 + slot

    def evict(self, slot: int, incarnation: int, *, patience_s: float) -> None:
        if not self.reachable:
            raise tf.errors.UnavailableError(None, None, "busy")
        self.evicted.append((slot, incarnation))


class PlayedProber:
    """A prober without a thread: the test reports the outcomes of probes."""

    report: Callable[[Mapping[Task, Observation]], None]

    def make(self, _: object, *, policy: object, report: Any) -> PlayedProber:
        self.report = report
        return self

    def start(self) -> None:
        """Start no thread."""

    def close(self) -> None:
        """End no thread."""


class ProbedGuard(NamedTuple):
    """A guard, the prober that it has started, and the tasks that reply at other addresses."""

    guard: Guard
    prober: PlayedProber
    there: dict[str, TaskIdentity]


class Closure:
    tag = None

    def mark_cancelled(self) -> None:
        raise AssertionError("it is not to be cancelled")


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def queue() -> ClosureQueue:
    return ClosureQueue()


@pytest.fixture
def probed(runtime: Runtime, queue: ClosureQueue, monkeypatch: pytest.MonkeyPatch) -> ProbedGuard:
    played: Any = runtime
    guard = Guard(
        played, policy=POLICY, fault_tolerance=FaultTolerance(no_worker_timeout_s=TIMEOUT_S)
    )
    prober = PlayedProber()
    monkeypatch.setattr("tfps.recovery.guard.Prober", prober.make)
    failures: Any = SimpleNamespace(
        excluded_workers=frozenset(), set_task_address=lambda *move: runtime.moves.append(move)
    )
    there: dict[str, TaskIdentity] = {}
    monkeypatch.setattr(
        new_addresses,
        "ask_identities",
        lambda asked, **_: {task: there.get(a, NOBODY) for task, a in asked.items()},
    )
    monkeypatch.setattr(new_addresses, "ASK_INTERVAL_S", 0.0)
    guard.start(queue, failures)
    return ProbedGuard(guard, prober, there)


def _probe(probed: ProbedGuard, *, times: int = 2, **seen: Observation) -> None:
    observations = {("worker", 0): REPLY, ("worker", 1): REPLY, ("ps", 0): REPLY}
    given = {(name[:-1], int(name[-1])): observation for name, observation in seen.items()}
    for _ in range(times):
        probed.prober.report({**observations, **given})


def test_a_closure_goes_back_once_the_servers_know(
    probed: ProbedGuard, queue: ClosureQueue, runtime: Runtime
) -> None:
    closure = Closure()
    queue.put(closure)
    assert queue.get(tag=1) is closure
    runtime.reachable = False
    _probe(probed, times=3, worker1=SILENCE)
    assert queue.blocked_workers == {1}
    assert queue.inflight_closure_count == 1
    runtime.reachable = True
    _probe(probed, times=2, worker1=SILENCE)
    assert runtime.evicted == [(1, 8)]
    assert queue.inflight_closure_count == 0
    assert queue.get(tag=0) is closure
    _probe(probed, times=1)
    assert queue.blocked_workers == frozenset()


def test_a_lost_worker_is_followed_to_its_new_address(
    probed: ProbedGuard, queue: ClosureQueue, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    _probe(probed, times=1, worker1=REFUSAL)
    probed.there[ELSEWHERE] = TaskIdentity(5, is_gone=False)
    assert runtime.moves == []
    assert runtime.alive == {("worker", 0), ("worker", 1), ("ps", 0)}
    _probe(probed, times=2, worker1=REFUSAL)
    assert runtime.alive == {("worker", 0), ("ps", 0)}, "a scheduler may give its place away"
    assert runtime.moves == [(("worker", 1), ELSEWHERE)] * 2, "TensorFlow's cluster as well"
    assert f"worker 1 moved to {ELSEWHERE} from 127.0.0.1:2" in caplog.text
    assert queue.blocked_workers == {1}
    _probe(probed, times=1)
    assert queue.blocked_workers == frozenset()


def test_one_miss_changes_nothing(
    probed: ProbedGuard, queue: ClosureQueue, runtime: Runtime
) -> None:
    for _ in range(5):
        _probe(probed, times=1, worker0=SILENCE, ps0=REFUSAL)
        _probe(probed, times=1)
    assert queue.blocked_workers == frozenset()
    assert runtime.servers[0].lost is None


def test_a_lost_server_fails_the_queue_until_it_answers(
    probed: ProbedGuard, queue: ClosureQueue, runtime: Runtime
) -> None:
    _probe(probed, times=4, ps0=SILENCE)
    assert runtime.hung_up == [0]
    assert "task:0 at 127.0.0.1:3" in runtime.servers[0].lost
    for _ in range(2):
        with raises(tf.errors.UnavailableError, "task:0 at 127.0.0.1:3", remedy="TFPS_PROBE"):
            queue.done()
    _probe(probed, times=1)
    assert runtime.servers[0].lost is None
    assert queue.done()


def test_waiting_for_who_hangs_not_for_who_is_gone(probed: ProbedGuard) -> None:
    _probe(probed, worker0=REFUSAL)
    probed.guard.wait_for_silent_workers()
    _probe(probed, worker1=SILENCE)
    waiter = threading.Thread(target=probed.guard.wait_for_silent_workers)
    waiter.start()
    waiter.join(0.3)
    assert waiter.is_alive()
    _probe(probed, times=1)
    waiter.join(30)
    assert not waiter.is_alive()


def test_that_nobody_answers_is_said_once(
    probed: ProbedGuard, caplog: pytest.LogCaptureFixture
) -> None:
    _probe(probed, times=5, worker0=SILENCE, worker1=REFUSAL)
    _probe(probed, times=1)
    _probe(probed, times=5, worker0=SILENCE, worker1=REFUSAL)
    said = [record.message for record in caplog.records if "no worker responds" in record.message]
    assert len(said) == 2
    assert "worker 0 at 127.0.0.1:1, worker 1 at 127.0.0.1:2" in said[0]


def test_no_worker_for_too_long_ends_the_waiting_until_one_answers(
    probed: ProbedGuard, queue: ClosureQueue
) -> None:
    _probe(probed, worker0=SILENCE, worker1=REFUSAL)
    assert queue.done()
    time.sleep(TIMEOUT_S)
    _probe(probed, times=1, worker0=SILENCE, worker1=REFUSAL)
    probed.guard.wait_for_silent_workers()  # it waits for no worker any more
    for _ in range(2):
        with raises(tf.errors.UnavailableError, "none of 2", received="0.2 s"):
            queue.done()
    _probe(probed, times=1, worker0=SILENCE)
    assert queue.done()


def test_who_answers_again_does_not_make_up_for_a_lost_server(
    probed: ProbedGuard, queue: ClosureQueue
) -> None:
    _probe(probed, ps0=SILENCE, worker0=REFUSAL, worker1=REFUSAL)
    time.sleep(TIMEOUT_S)
    _probe(probed, times=1, ps0=SILENCE, worker0=REFUSAL, worker1=REFUSAL)
    _probe(probed, times=1, ps0=SILENCE)
    with pytest.raises(tf.errors.UnavailableError):
        queue.done()
    _probe(probed, times=1, worker0=REFUSAL)
    assert queue.done()


class StubSupervisor:
    """The process that has started the tasks."""

    end_reason = give_up_reason = ""

    def __init__(self) -> None:
        self.restarts: list[str] = []
        self.lost: list[tuple[str, int]] = []

    def set_server_restarts(self, wanted: Callable[[], bool]) -> None:
        raise AssertionError("the guard has no use for them")

    def report_lost(self, tasks: Iterable[tuple[str, int]]) -> None:
        self.lost = [*tasks]


@pytest.fixture
def supervisor() -> Iterator[StubSupervisor]:
    supervisor = StubSupervisor()
    register_supervisor(["127.0.0.1:1"], supervisor)
    yield supervisor
    unregister_supervisor(["127.0.0.1:1"])


def test_nobody_waits_for_workers_that_are_not_started_again(
    probed: ProbedGuard,
    queue: ClosureQueue,
    supervisor: StubSupervisor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor.end_reason = "no worker is left"  # their supervisor has given up
    _probe(probed, worker0=REFUSAL, worker1=REFUSAL)
    with raises(tf.errors.UnavailableError, "no worker is left"):
        queue.done()
    assert "Restart them" not in caplog.text


def test_a_chief_whose_tasks_are_started_again_asks_nobody_else_to(
    probed: ProbedGuard, supervisor: StubSupervisor, caplog: pytest.LogCaptureFixture
) -> None:
    _probe(probed, worker0=REFUSAL, worker1=REFUSAL)
    assert "Dead workers restart" in caplog.text
    assert "Restart them" not in caplog.text


def test_who_has_started_the_tasks_is_told_who_is_lost_until_it_answers(
    probed: ProbedGuard, queue: ClosureQueue, runtime: Runtime, supervisor: StubSupervisor
) -> None:
    closure = Closure()
    queue.put(closure)
    queue.get(tag=1)
    _probe(probed, times=1, worker1=SILENCE, ps0=SILENCE)
    assert supervisor.lost == []
    closure.mark_cancelled = lambda: None  # type: ignore[method-assign] # by the server's loss
    _probe(probed, times=1, worker1=SILENCE, ps0=SILENCE)
    assert supervisor.lost == [("worker", 1), ("ps", 0)]
    assert (runtime.evicted, runtime.hung_up) == ([(1, 8)], [0]), "no process hears them any more"
    _probe(probed, times=1, worker1=SILENCE)
    assert supervisor.lost == [("worker", 1)]
    probed.guard.close()
    assert supervisor.lost == []
