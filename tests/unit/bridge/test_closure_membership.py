"""Workers leave when they have nothing to run, and before their failure is reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tests.unit.bridge.closure_threads import DEADLINE_S, Cluster
from tfps.bridge.closures import closure_queue
from tfps.bridge.closures.closure_membership import ClosureMembership


class Diary(ClosureMembership):
    """A membership with all workers from the first closure on, and notes of their events."""

    def __init__(self) -> None:
        self.members: set[int] = set()
        self.invited: set[int] = set()
        self.there: set[int] = set()
        self.notes: list[tuple[str, int]] = []
        self.is_idle: list[bool] = []
        self.changed = threading.Condition()

    def _note(self, what: str, worker: int) -> None:
        with self.changed:
            self.notes.append((what, worker))
            self.changed.notify_all()

    def is_member(self, worker: int) -> bool:
        return worker in self.members

    def on_schedule(self, closure: Any, *, is_idle: bool) -> bool:
        self.is_idle.append(is_idle)
        self.members |= self.invited
        return bool(self.invited)

    def on_idle(self, worker: int) -> None:
        self.there.add(worker)

    def on_error(self, worker: int) -> None:
        self.members.discard(worker)
        self._note("fails", worker)

    def on_leave(self, worker: int) -> None:
        self.members.discard(worker)
        self._note("leaves", worker)

    def wait_for(self, what: str, worker: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: (what, worker) in self.notes, DEADLINE_S)


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
def cluster(diary: Diary) -> Iterator[Cluster]:
    cluster = Cluster(2)
    for idle in cluster.idle:
        assert idle.wait(DEADLINE_S)
    cluster.queue.set_membership(diary)
    yield cluster
    cluster.close()


def _idle(cluster: Cluster) -> None:
    for idle in cluster.idle:
        assert idle.wait(DEADLINE_S)


def test_who_asks_already_is_known(cluster: Cluster, diary: Diary) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while diary.there != {0, 1}:
        assert time.monotonic() < ends_at


def test_members_leave_when_nothing_comes(cluster: Cluster, diary: Diary) -> None:
    _idle(cluster)
    diary.invited = {0, 1}
    worker, run = cluster.who_took(cluster.put())
    diary.wait_for("leaves", 1 - worker)
    assert diary.notes == [("leaves", 1 - worker)]
    run.end()
    diary.wait_for("leaves", worker)
    assert cluster.queue.done()


def test_members_stay_for_what_comes_soon(
    cluster: Cluster, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure_queue, "LINGER_S", DEADLINE_S)
    _idle(cluster)
    diary.invited = {0, 1}
    for run in [cluster.who_took(cluster.put())[1] for _ in range(2)]:
        run.end()
    _idle(cluster)
    assert diary.notes == []
    assert diary.is_idle == [True, False]
    # A thread in `wait` does not wait for workers that could still be given something.
    assert cluster.queue.wait(timeout=DEADLINE_S)
    closure = cluster.put()
    worker, run = cluster.who_took(closure)
    threading.Timer(0.2, run.end).start()
    assert cluster.queue.wait(timeout=DEADLINE_S)
    diary.wait_for("leaves", 1 - worker)


@pytest.mark.parametrize("error", [ValueError("wrong"), tf.errors.CancelledError(None, None, "")])
def test_who_fails_is_out_before_anybody_hears_of_it(
    cluster: Cluster, diary: Diary, error: Exception
) -> None:
    closure = cluster.put()
    worker, run = cluster.who_took(closure)
    diary.members = {worker}
    run.end(error)
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="wrong"):
            cluster.queue.wait()
    else:
        closure.next_run().end()
        cluster.queue.wait()
    assert diary.notes[0] == ("fails", worker)


def test_a_barred_member_leaves(cluster: Cluster, diary: Diary) -> None:
    _idle(cluster)
    cluster.queue.block_worker(0)
    diary.invited = {0}
    worker, run = cluster.who_took(cluster.put())
    assert worker == 1
    diary.wait_for("leaves", 0)
    run.end()


def test_who_was_recalled_leaves_when_its_thread_comes_home(cluster: Cluster, diary: Diary) -> None:
    closure = cluster.put()
    hung, zombie = cluster.who_took(closure)
    diary.members = {hung}
    cluster.queue.block_worker(hung)
    cluster.queue.requeue_recalled(hung)
    cluster.who_took(closure)[1].end()
    assert diary.notes == []
    zombie.end()
    diary.wait_for("leaves", hung)
