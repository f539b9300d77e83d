"""A queue that takes closures back from workers, with threads instead of workers."""

from __future__ import annotations

import ast
import inspect
import queue
import textwrap
import threading
from collections.abc import Iterator

import pytest
import tensorflow as tf

from tests.unit.bridge.closure_threads import DEADLINE_S, Closure, Cluster
from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures import closure_queue
from tfps.bridge.closures.closure_queue import ClosureQueue


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = Cluster(getattr(request, "param", 2))
    yield cluster
    cluster.close()


def test_a_recalled_closure_is_run_by_another_worker(cluster: Cluster) -> None:
    closure = cluster.put()
    hung, zombie = cluster.who_took(closure)
    cluster.queue.block_worker(hung)
    assert cluster.queue.recalled_workers == {hung}
    assert not cluster.queue.wait(timeout=0.05)
    cluster.queue.requeue_recalled(hung)
    cluster.queue.requeue_recalled(hung)  # as every round of probes does
    other, run = cluster.who_took(closure)
    assert other != hung
    run.end()
    assert cluster.queue.wait(timeout=DEADLINE_S)
    assert cluster.queue.recalled_workers == {hung}
    zombie.end()
    assert cluster.idle[hung].wait(DEADLINE_S)
    assert cluster.queue.recalled_workers == frozenset()
    assert cluster.queue.done()
    assert len(closure.runs) == 2


@pytest.mark.parametrize("error", [None, RuntimeError("of the user's")])
def test_who_waits_is_woken_by_the_end(cluster: Cluster, error: Exception | None) -> None:
    first = cluster.put().next_run()
    cluster.queue.wait_until_idle(0.05)  # comes back although the closure goes on
    woken = threading.Event()

    def wait() -> None:
        cluster.queue.wait_until_idle(2 * DEADLINE_S)
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not woken.wait(0.05)
    second = cluster.put().next_run()  # `wait` would keep it from being scheduled
    if error is None:
        first.end()
        assert not woken.wait(0.05)
    second.end(error)
    assert woken.wait(DEADLINE_S)
    first.end()


def test_an_error_comes_before_those_of_closures_that_it_cancels() -> None:
    closures = ClosureQueue()
    for _ in range(2):
        closures.put(Closure())
    own = tf.errors.InvalidArgumentError(None, None, "of the user's")
    for worker, error in enumerate([tf.errors.CancelledError(None, None, ""), own]):
        closures.get(tag=worker)
        closures.mark_failed(error)
    with pytest.raises(tf.errors.InvalidArgumentError, match="of the user's"):
        closures.done()
    assert closures.done()


def test_lives_end_with_a_loss_and_begin_with_a_closure(cluster: Cluster) -> None:
    closure = cluster.put()
    hung, run = cluster.who_took(closure)
    run.end()
    assert cluster.queue.wait(timeout=DEADLINE_S)
    assert cluster.queue.count_lives(workers=2) == (1, 1)
    cluster.queue.block_worker(hung)
    cluster.queue.unblock_worker(hung)
    cluster.queue.on_worker_return(hung)  # the same loss, as TensorFlow has found it
    assert cluster.queue.count_lives(workers=2) == (1, 1)
    cluster.queue.block_worker(
        1 - hung
    )  # so that the next one is taken by the worker that came back
    again = cluster.put()
    worker, run = cluster.who_took(again)
    assert worker == hung
    lives = cluster.queue.count_lives(workers=2)
    assert (lives[hung], lives[1 - hung]) == (2, 1)
    run.end()
    assert cluster.queue.wait(timeout=DEADLINE_S)
    assert cluster.queue.count_lives(workers=2) == lives


@pytest.mark.parametrize(
    "error", [None, ValueError("a zombie's"), tf.errors.CancelledError(None, None, "")]
)
def test_how_a_hung_worker_ends_its_closure_does_not_matter(
    cluster: Cluster, error: Exception | None
) -> None:
    closure = cluster.put()
    hung, zombie = cluster.who_took(closure)
    cluster.queue.block_worker(hung)
    cluster.queue.requeue_recalled(hung)
    _, run = cluster.who_took(closure)
    zombie.end(error)
    assert cluster.idle[hung].wait(DEADLINE_S)
    assert not cluster.queue.done()
    run.end()
    assert cluster.queue.wait(timeout=DEADLINE_S)
    assert len(closure.runs) == 2


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_the_only_worker_comes_back(cluster: Cluster) -> None:
    closure = cluster.put()
    _, zombie = cluster.who_took(closure)
    cluster.queue.block_worker(0)
    cluster.queue.requeue_recalled(0)
    zombie.end()
    assert not cluster.queue.wait(timeout=0.05)  # its thread is home, but it is still barred
    assert len(closure.runs) == 1
    cluster.queue.unblock_worker(0)
    closure.next_run().end()
    assert cluster.queue.wait(timeout=DEADLINE_S)


def test_a_barred_worker_does_not_keep_another_from_being_woken(cluster: Cluster) -> None:
    for worker in (0, 1):
        assert cluster.idle[worker].wait(DEADLINE_S)
        cluster.queue.block_worker(worker)
        for _ in range(5):
            assert cluster.who_took(cluster.put(ends_at_once=True))[0] == 1 - worker
        assert cluster.queue.wait(timeout=DEADLINE_S)
        cluster.queue.unblock_worker(worker)


def test_a_closure_that_ends_before_it_is_given_back_runs_again(cluster: Cluster) -> None:
    """The servers may have removed the worker in the middle of the closure."""
    closure = cluster.put()
    hung, run = cluster.who_took(closure)
    cluster.queue.block_worker(hung)
    run.end()
    other, again = cluster.who_took(closure)
    assert other != hung
    cluster.queue.requeue_recalled(hung)
    again.end()
    assert cluster.queue.wait(timeout=DEADLINE_S)
    assert len(closure.runs) == 2


def test_an_error_reaches_who_waits(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closure_queue, "CANCEL_TIMEOUT_S", 0.05)
    running = [cluster.put().next_run(), cluster.put().next_run()]
    queued = cluster.put()
    timer = threading.Timer(0.1, cluster.queue.fail, [lambda: ValueError("lost")])
    timer.start()
    with pytest.raises(ValueError, match="lost"):
        cluster.queue.wait()
    timer.join()
    assert queued.cancelled.is_set()
    for call in (cluster.queue.done, cluster.queue.wait, cluster.put):
        with pytest.raises(ValueError, match="lost"):
            call()
    cluster.queue.clear_failure()
    assert cluster.queue.done()
    for run in running:
        run.end(ValueError("a zombie's"))
    fresh = cluster.put(ends_at_once=True)
    assert cluster.queue.wait(timeout=DEADLINE_S)
    assert len(fresh.runs) == 1
    assert queued.runs == []


def test_failures_are_told(cluster: Cluster) -> None:
    failed_workers: queue.Queue[int] = queue.Queue()
    cluster.queue.on_failure = failed_workers.put
    closure = cluster.put()
    worker, run = cluster.who_took(closure)
    run.end(tf.errors.CancelledError(None, None, ""))
    assert failed_workers.get(timeout=DEADLINE_S) == worker
    closure.next_run().end()
    assert cluster.queue.wait(timeout=DEADLINE_S)


def test_what_nobody_began_can_be_discarded(cluster: Cluster) -> None:
    cluster.queue.block_worker(0)
    cluster.queue.block_worker(1)
    closure = cluster.put()
    assert not cluster.queue.wait(timeout=0.05)
    cluster.queue.discard_queued()
    assert cluster.queue.wait(timeout=DEADLINE_S)
    assert closure.cancelled.is_set()
    assert closure.runs == []


def test_what_comes_back_while_it_is_held_is_not_begun_again(cluster: Cluster) -> None:
    closure = cluster.put()
    run = closure.next_run()
    with cluster.queue.hold():
        run.end(tf.errors.CancelledError(None, None, "put back"))
        assert not cluster.queue.wait(timeout=0.2)
        assert len(closure.runs) == 1
        cluster.queue.discard_queued()
        assert cluster.queue.wait(timeout=DEADLINE_S)
    assert closure.cancelled.is_set()
    cluster.put().next_run().end()
    assert cluster.queue.wait(timeout=DEADLINE_S)


def test_closing_cancels_what_there_is_and_says_so_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure_queue, "CANCEL_TIMEOUT_S", 0.05)
    cluster.queue.close(lambda: ValueError("closed"))  # nothing to cancel
    assert cluster.queue.done()
    running = [cluster.put().next_run(), cluster.put().next_run()]
    queued = cluster.put()
    cluster.queue.close(lambda: ValueError("closed"))
    assert queued.cancelled.is_set()
    for run in running:
        run.end()
    with pytest.raises(ValueError, match="closed"):
        cluster.queue.wait()
    assert cluster.queue.wait(timeout=DEADLINE_S)


def test_every_inherited_name_is_tensorflows() -> None:
    base = ast.parse(textwrap.dedent(inspect.getsource(private.CoordinatedClosureQueue)))
    own = ast.parse(textwrap.dedent(inspect.getsource(ClosureQueue)))

    def of_self(tree: ast.AST, context: type) -> set[str]:
        return {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and isinstance(node.ctx, context)
        }

    defined = of_self(base, ast.Store) | set(vars(private.CoordinatedClosureQueue))
    ours = of_self(own, ast.Store) | set(vars(ClosureQueue))
    assert {"_queue_lock", "_error"} <= of_self(own, ast.Load)
    assert of_self(own, ast.Load) - ours <= defined
    overridden = {"get", "put_back", "mark_finished", "mark_failed", "stop", "_raise_if_error"}
    assert overridden | {"_cancel_all_closures"} <= defined
