"""Which of a scheduled function's two traces a worker runs at the begin of a training."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfps.bridge.closure_membership import ClosureMembership
from tfps.runtime.coordinator import warm_up as module
from tfps.runtime.coordinator.warm_up import WarmUp

WORKERS, STEPS = 3, 2
DEADLINE_S = 30.0


class FakeQueue:
    """Of a coordinator."""

    _cancellation_mgr = SimpleNamespace(get_cancelable_function=lambda function: function)

    def __init__(self) -> None:
        self.barred: frozenset[int] = frozenset()

    def look_again(self) -> None: ...


class FakeRuntime:
    """Servers that know how often workers have called optimizers."""

    container, worker_lines, workers, closed = "job", (), WORKERS, False

    def __init__(self) -> None:
        self.calls = np.zeros([WORKERS], np.int64)
        line = SimpleNamespace(function=lambda trace, arguments: lambda: [self.calls])
        self.ticket_server = SimpleNamespace(control=line, device="ps")

    def create_variable(self, initial_value: Any, **options: Any) -> Any:
        return initial_value

    def collect(self) -> None: ...


class Mode(ClosureMembership):
    """What the mode needs; notes what it hears of."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.absent: list[set[int]] = []

    def on_start(self, worker: int, closure: Any) -> None:
        self.taken.append(worker)

    def all_begin(self, *, without: Any) -> None:
        self.absent.append(set(without))


class Job:
    """A warm-up of functions that call optimizers once."""

    def __init__(self) -> None:
        self.runtime, self.queue, self.mode = FakeRuntime(), FakeQueue(), Mode()
        self.warm_up = WarmUp(self.runtime, steps=STEPS)  # type: ignore[arg-type]
        self.warm_up.stand_before(self.mode, queue=self.queue)  # type: ignore[arg-type]
        self.graph = tf.Graph()
        self.optimizer = SimpleNamespace(iterations=tf.constant(0))
        self.versions = [0, 0]

    @property
    def strategy(self) -> Any:
        return SimpleNamespace(stats=lambda: SimpleNamespace(versions=self.versions))

    def trace(self) -> bool:
        """A function; answers whether it may be of the warm-up."""
        if not self.warm_up.begins([self.optimizer], strategy=self.strategy):
            return False
        self.warm_up.prepare_end()
        self.warm_up.twins[self.graph] = SimpleNamespace(graph="twin")
        return True

    def schedule(self) -> Any:
        own = SimpleNamespace(graph=self.graph)
        closure = SimpleNamespace(_concrete_function=own, _function=own)
        assert not self.warm_up.scheduled(closure, is_idle=True)
        return closure

    def begins(self, worker: int) -> bool:
        """Let a worker take a function; answers whether it is of the warm-up."""
        closure = self.schedule()
        self.warm_up.on_start(worker, closure)
        return bool(closure._concrete_function.graph == "twin")

    def on_end(self, worker: int, *, calls: int = 1) -> None:
        self.runtime.calls[worker] += calls
        self.warm_up.on_end(worker)

    def runs(self, worker: int, *, calls: int = 1) -> bool:
        is_warm = self.begins(worker)
        self.on_end(worker, calls=calls if is_warm else 0)
        return is_warm

    def all_come(self) -> None:
        for worker in range(WORKERS):
            self.warm_up.on_idle(worker)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    job = Job()
    job.all_come()
    assert job.trace()
    return job


@pytest.fixture
def apart() -> Iterator[Callable[[Callable[[], Any]], queue.Queue[Any]]]:
    """Calls functions on threads of their own; answers where their answers come."""
    threads = []

    def call(function: Callable[[], Any]) -> queue.Queue[Any]:
        answers: queue.Queue[Any] = queue.Queue()
        threads.append(threading.Thread(target=lambda: answers.put(function())))
        threads[-1].start()
        return answers

    yield call
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_each_worker_takes_its_steps(job: Job) -> None:
    """Who has taken them goes on by itself until all others have."""
    assert all(job.runs(0) for _ in range(2 * STEPS))
    assert job.runs(1, calls=STEPS)
    assert job.runs(2)
    assert job.mode.taken == []
    assert job.runs(2)
    assert not job.runs(0)
    assert not job.runs(2)
    assert job.mode.taken == [0, 2]
    assert job.mode.absent == [set()]


def test_the_mode_begins_when_no_function_of_the_warm_up_runs(job: Job, apart: Any) -> None:
    for worker in range(WORKERS):
        assert job.runs(worker, calls=STEPS - 1)
    assert job.begins(1)
    for worker in range(WORKERS):
        job.runtime.calls[worker] = STEPS
    waits = apart(lambda: job.begins(0))
    with pytest.raises(queue.Empty):
        waits.get(timeout=0.1)
    job.on_end(1)
    assert waits.get(timeout=DEADLINE_S) is False
    assert not job.warm_up.twins  # nor what they hold on the servers


def test_a_worker_that_is_away_owes_nothing(job: Job) -> None:
    """And the rest of its steps when it is back in time."""
    for worker in range(2):
        assert job.runs(worker, calls=STEPS)
    job.warm_up.on_error(2)
    job.warm_up.on_idle(2)
    assert job.runs(0)
    assert job.begins(2)
    job.warm_up.on_error(2)
    job.warm_up.on_end(2)
    assert not job.runs(0)


def test_a_worker_that_hangs_is_not_waited_for(job: Job, apart: Any) -> None:
    """Neither for its steps nor for its function to end."""
    for worker in range(2):
        assert job.runs(worker, calls=STEPS)
    assert job.begins(2)
    assert job.runs(0)
    job.queue.barred = frozenset([2])
    assert apart(lambda: job.begins(0)).get(timeout=DEADLINE_S) is False
    assert job.mode.absent == [{2}]


def test_it_can_be_ended(job: Job) -> None:
    assert job.runs(0)
    job.warm_up.end()
    assert not job.runs(1)


@pytest.mark.parametrize("what", ["iterations", "versions"])
def test_a_job_that_goes_on_has_none(what: str) -> None:
    job = Job()
    job.all_come()
    if what == "iterations":
        job.optimizer.iterations = tf.constant(3)
    else:
        job.versions = [0, 1]
    assert not job.trace()
    assert not job.begins(0)


def test_who_waits_hears_that_the_strategy_is_closed(job: Job, apart: Any) -> None:
    assert job.begins(1)

    def wait() -> type:
        with pytest.raises(tf.errors.CancelledError, match="closed") as error:
            job.warm_up.end()
        return error.type

    waits = apart(wait)
    job.runtime.closed = True
    assert waits.get(timeout=DEADLINE_S) is tf.errors.CancelledError
