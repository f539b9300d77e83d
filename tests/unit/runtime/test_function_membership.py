"""The workers that take part while scheduled functions train."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.consistency.mode import Mode
from tfps.consistency.modes import BoundedStaleness
from tfps.consistency.synchronous import Synchronous
from tfps.runtime.coordinator import function_membership as module
from tfps.runtime.coordinator.control_plane import waits_for_lost_servers
from tfps.runtime.coordinator.function_membership import FunctionMembership
from tfps.runtime.coordinator.server_members import ServerMembers

WORKERS = 3
DEADLINE_S = 30.0


class FakeRuntime:
    """A runtime that notes the requests to servers."""

    workers, closed = WORKERS, False

    def __init__(self, mode: Mode) -> None:
        self.mode, self.requests = mode, list[Any]()
        self.is_back = threading.Event()
        channel = SimpleNamespace(is_reachable=lambda *, timeout_s: self.is_back.wait(timeout_s))
        self.worker_channels = [channel] * WORKERS
        self._next, self.members = itertools.count(1), self

    def next_incarnation(self, slot: int) -> int:
        return next(self._next)

    def expect(self, there: list[bool]) -> None:
        self.requests.append(("expect", there))

    def evict(self, slot: int, incarnation: int) -> None:
        self.requests.append(("evict", slot, incarnation))


def _closure(*, trains: bool = True, tag: int | None = None) -> Any:
    return SimpleNamespace(tag=tag, trains=trains)


@pytest.fixture(autouse=True)
def _known_closures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "takes_part_in_training", lambda closure: closure.trains)


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> FakeRuntime:
    return FakeRuntime(getattr(request, "param", Synchronous()))


def _membership(runtime: FakeRuntime, there: range = range(WORKERS)) -> FunctionMembership:
    membership = FunctionMembership(runtime)  # type: ignore[arg-type]
    for worker in there:
        membership.on_idle(worker)
    return membership


def test_all_that_are_there_are_expected_when_work_begins(runtime: FakeRuntime) -> None:
    membership = _membership(runtime, range(2))
    assert not membership.on_schedule(_closure(trains=False), is_idle=True)
    assert membership.on_schedule(_closure(), is_idle=True)
    assert runtime.requests == [("expect", [True, True, False])]
    assert not membership.on_schedule(_closure(), is_idle=False)
    assert membership.get_member(0) == (0, 1)
    assert not membership.is_member(2)
    membership.on_start(2, _closure())
    assert membership.get_member(2) == (2, 3)
    assert len(runtime.requests) == 1


def test_an_incarnation_lasts_until_there_is_nothing_to_run(runtime: FakeRuntime) -> None:
    membership = _membership(runtime)
    membership.on_start(0, _closure())
    membership.on_idle(0)
    membership.on_start(0, _closure(tag=0, trains=False))  # makes a dataset for it
    membership.on_start(0, _closure())
    assert membership.get_member(0) == (0, 1)
    assert runtime.requests == []
    membership.on_leave(0)
    membership.on_leave(0)
    assert runtime.requests == [("evict", 0, 1)]
    membership.on_start(0, _closure())
    assert membership.get_member(0) == (0, 2)
    membership.on_start(0, _closure(trains=False))
    assert runtime.requests[-1] == ("evict", 0, 2)


def test_who_has_failed_is_not_expected(runtime: FakeRuntime) -> None:
    """Its thread may wait for the worker's return, and could not evict it."""
    membership = _membership(runtime)
    membership.on_start(1, _closure())
    membership.on_error(1)
    assert membership.on_schedule(_closure(), is_idle=True)
    assert runtime.requests == [("evict", 1, 1), ("expect", [True, False, True])]
    membership.evict_all()
    assert runtime.requests[2:] == [("evict", 0, 2), ("evict", 2, 3)]
    membership.on_idle(1)
    membership.on_schedule(_closure(), is_idle=True)
    assert runtime.requests[-1] == ("expect", [True, True, True])


@pytest.mark.parametrize("runtime", [BoundedStaleness(1)], indirect=True)
def test_a_clock_expects_nobody(runtime: FakeRuntime) -> None:
    membership = _membership(runtime)
    assert not membership.on_schedule(_closure(), is_idle=True)
    membership.on_start(0, _closure())
    assert membership.is_member(0)
    assert runtime.requests == []


def test_nothing_begins_while_workers_return(runtime: FakeRuntime) -> None:
    membership = _membership(runtime)
    membership.on_start(0, _closure())
    membership.on_start(1, _closure())
    membership.on_end(1)
    resting, goes_on = threading.Event(), threading.Event()

    def take_in() -> None:
        with membership.drain():
            resting.set()
            assert goes_on.wait(DEADLINE_S)

    threads = [threading.Thread(target=take_in)]
    threads[0].start()
    membership.on_start(1, _closure())  # no worker rests before the last one is back
    membership.on_end(1)
    runtime.is_back.set()
    ends_at = time.monotonic() + DEADLINE_S
    while not membership.is_drained:
        assert time.monotonic() < ends_at
    threads.append(threading.Thread(target=membership.on_start, args=[1, _closure()]))
    threads[1].start()
    assert not resting.wait(0.1)  # 0 still runs, and may wait for 1, which therefore leaves
    assert runtime.requests == [("evict", 1, 2)]
    membership.on_end(0)
    assert resting.wait(DEADLINE_S)
    assert not membership.is_member(1)
    goes_on.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert membership.get_member(1) == (1, 3)


def test_nothing_is_said_to_a_closed_strategy(runtime: FakeRuntime) -> None:
    membership = _membership(runtime)
    membership.on_start(0, _closure())
    runtime.closed = True
    membership.on_leave(0)
    assert runtime.requests == []
    with raises(tf.errors.CancelledError, "strategy", received="closed"):
        membership.on_start(0, _closure())


def test_a_lost_server_cannot_be_told(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(slot: int, incarnation: int) -> None:
        raise tf.errors.UnavailableError(None, None, "lost")

    membership = _membership(runtime)
    membership.on_start(0, _closure())
    monkeypatch.setattr(runtime, "evict", lost)
    membership.on_leave(0)
    assert not membership.is_member(0)


def test_work_may_be_scheduled_while_a_server_is_lost(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that have heard of the workers do not wait for them; all begin when it is back."""

    def lost(there: list[bool]) -> None:
        raise tf.errors.UnavailableError(None, None, "lost")

    membership = _membership(runtime, range(2))
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "expect", lost)
        assert not membership.on_schedule(_closure(), is_idle=True)
    assert runtime.requests == [("evict", 0, 1), ("evict", 1, 2)]
    assert not membership.is_member(0)
    assert membership.on_schedule(_closure(), is_idle=True)
    assert runtime.requests[2:] == [("expect", [True, True, False])]


def test_nobody_waits_for_a_lost_server_with_what_ends_of_functions_need(
    runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that brings it back waits for these functions."""
    waits = list[bool]()
    monkeypatch.setattr(runtime, "evict", lambda *_: waits.append(waits_for_lost_servers()))
    monkeypatch.setattr(runtime, "expect", lambda *_: waits.append(waits_for_lost_servers()))
    membership = _membership(runtime)
    membership.on_schedule(_closure(), is_idle=True)
    for worker, leave in enumerate((membership.on_leave, membership.on_error)):
        membership.on_start(worker, _closure())
        membership.on_end(worker)
        leave(worker)
    membership.on_start(2, _closure())
    membership.evict_all()
    assert waits == [False] * 4
    assert waits_for_lost_servers()


def test_all_other_servers_hear_who_leaves_where_one_does_not_answer() -> None:
    requests = []

    def evict(*sent: int, patience_s: float) -> None:
        requests.append(sent)

    def lost(*_: int, patience_s: float) -> None:
        raise tf.errors.UnavailableError(None, None, "it does not respond")

    calls = [lost, evict, lost, evict]
    servers: Any = [SimpleNamespace(lost=None, evict=call) for call in calls]
    servers[3].lost = "it is known to be lost"
    with pytest.raises(tf.errors.UnavailableError, match="it does not respond"):
        ServerMembers(servers, on_eviction=lambda _: None).evict(1, 7)
    assert requests == [(1, 7)]
