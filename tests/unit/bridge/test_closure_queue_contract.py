"""The assertions of TensorFlow about its closure queue hold for ours, with threads as workers.

One test for each of `CoordinatedClosureQueueTest`, see tests/cluster/upstream/README.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

from tests.unit.bridge.closure_threads import DEADLINE_S, Closure, Cluster
from tfps.bridge.closures.closure_queue import ClosureQueue

# How a program meets the error of a closure.
WAYS: dict[str, Callable[[ClosureQueue], object]] = {
    "wait": lambda queue: queue.wait(),
    "put": lambda queue: queue.put(Closure()),
}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(getattr(request, "param", 2))
    yield cluster
    cluster.close()


def _cancelled() -> Exception:
    return tf.errors.CancelledError(None, None, "the worker is lost")


def test_a_closure_that_was_put_back_comes_again() -> None:
    queue = ClosureQueue()
    closure = Closure()
    queue.put(closure)
    assert queue.get(tag=0) is closure
    assert not queue.done()
    queue.put_back(closure)
    assert queue.get(tag=0) is closure
    queue.mark_finished()
    assert queue.done()
    queue.wait()


def test_every_closure_is_run_although_some_are_put_back(cluster: Cluster) -> None:
    closures = [cluster.put() for _ in range(5)]
    lost = 0
    for _ in range(7):
        _, closure = cluster.taken.get(timeout=DEADLINE_S)
        run = closure.next_run()
        if lost < 2:
            lost += 1
            run.end(_cancelled())
        else:
            run.end()
    for _ in range(4):
        assert cluster.queue.wait(timeout=DEADLINE_S)
    assert sum(len(closure.runs) for closure in closures) == 7
    assert all(closure.runs[-1].error is None for closure in closures)


def test_waiting_for_what_has_ended_returns_at_once(cluster: Cluster) -> None:
    closure = cluster.put(ends_at_once=True)
    closure.next_run()
    for idle in cluster.idle:
        assert idle.wait(DEADLINE_S)
    assert cluster.queue.wait(timeout=DEADLINE_S)


def test_wait_returns_only_after_the_failure(cluster: Cluster) -> None:
    run = cluster.put().next_run()
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        run.end(ValueError("some error"))

    timer = threading.Timer(0.1, fail)
    timer.start()
    with pytest.raises(ValueError, match="some error"):
        cluster.queue.wait()
    assert failed.is_set()
    timer.join()
    assert cluster.queue.done()


def _put_two_and_fail_one() -> tuple[ClosureQueue, Closure]:
    """Returns the queue, whose first closure failed on this thread, and the one still in it."""
    queue, failing, queued = ClosureQueue(), Closure(), Closure()
    queue.put(failing)
    queue.put(queued)
    assert queue.get(tag=0) is failing
    assert not queue.done()
    queue.mark_failed(ValueError("some error"))
    return queue, queued


@pytest.mark.parametrize("way", WAYS)
def test_an_error_is_raised_once_and_cancels_what_waits(way: str) -> None:
    queue, queued = _put_two_and_fail_one()
    with pytest.raises(ValueError, match="some error"):
        WAYS[way](queue)
    assert queue.done()
    assert queued.cancelled.is_set()
    fresh = Closure()
    queue.put(fresh)  # the error is cleared
    assert queue.get(tag=0) is fresh
    queue.mark_finished()
    queue.wait()


def test_done_raises_the_error() -> None:
    queue, _ = _put_two_and_fail_one()
    with pytest.raises(ValueError, match="some error"):
        queue.done()


@pytest.mark.parametrize("way", WAYS)
def test_an_error_waits_for_what_still_runs(way: str) -> None:
    """The closure in flight is cancelled; how it then ends is not what is reported."""
    queue, running = ClosureQueue(), Closure()
    queue.put(running)
    ended = threading.Event()

    def run_other() -> None:
        assert queue.get(tag=1) is running
        taken.set()
        assert manager.is_cancelled or cancelled.wait(DEADLINE_S)
        ended.set()
        queue.mark_failed(ValueError("an error of being cancelled"))

    manager, taken, cancelled = queue._cancellation_mgr, threading.Event(), threading.Event()
    other = threading.Thread(target=run_other)
    other.start()
    assert taken.wait(DEADLINE_S)
    failing, waiting = Closure(), Closure()
    queue.put(failing)
    queue.put(waiting)
    assert queue.get(tag=0) is failing
    queue.mark_failed(ValueError("some error"))
    timer = threading.Timer(0.1, cancelled.set)
    timer.start()
    with pytest.raises(ValueError, match="some error"):
        WAYS[way](queue)
    assert ended.is_set()
    assert manager.is_cancelled
    assert waiting.cancelled.is_set()
    for thread in (timer, other):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert queue.done()


def test_after_an_error_was_raised_closures_are_taken_again() -> None:
    queue, _ = _put_two_and_fail_one()
    with pytest.raises(ValueError, match="some error"):
        queue.put(Closure())
    closures = [Closure(), Closure()]
    for closure in closures:
        queue.put(closure)
    for closure in closures:
        assert queue.get(tag=0) is closure
        queue.mark_finished()
    assert queue.done()


def test_many_threads_put_back_and_finish() -> None:
    threads, actions = 10, 20
    queue = ClosureQueue()

    def work(worker: int) -> None:
        for action in range(actions):
            closure = queue.get(tag=worker)
            queue.put_back(closure) if action % 2 == 0 else queue.mark_finished()

    workers = [threading.Thread(target=work, args=[number]) for number in range(threads)]
    for worker in workers:
        worker.start()
    for _ in range(threads * actions // 2):
        queue.put(Closure())
    queue.wait()
    assert queue.done()
    for worker in workers:
        worker.join(DEADLINE_S)
        assert not worker.is_alive()


def test_a_tagged_closure_goes_to_its_worker_only() -> None:
    queue = ClosureQueue()
    other, mine, anyones = Closure(), Closure(), Closure()
    queue.put(other, tag=1)
    queue.put(mine, tag=2)
    queue.put(anyones)
    assert queue.get(tag=2) is mine
    assert not queue.done()
    assert queue.get(tag=2) is anyones
    queue.mark_finished()
    assert queue.done()  # `done` does not wait for a tagged one
    queue.wait()


def test_a_tagged_closure_may_be_counted_and_marked() -> None:
    """TensorFlow's own test does so to let every worker run one."""
    queue = ClosureQueue()
    closure = Closure()
    queue.inflight_closure_count += 1
    queue.put(closure, tag=3)
    assert queue.get(tag=3) is closure
    assert not queue.done()
    queue.mark_finished()
    assert queue.done()
