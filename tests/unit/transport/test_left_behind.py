"""A worker joins, or is evicted, while an exchange of a cancelled closure is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.transport.served import JOB, ServedFunctions, served
from tfps.bridge.named_functions import register_named_function
from tfps.transport import links
from tfps.transport.direct import Plain
from tfps.transport.message import REPLY_FIELDS, Kind
from tfps.transport.service import Entry

DEADLINE_S = 30.0

pytestmark = pytest.mark.timeout(60)


class Gate:
    """A gate that holds a push up on the server, and notes the kinds of requests that pass."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.passed_kinds: list[int] = []

    def pass_through(self, kind: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if kind == Kind.PUSH:
            self.entered.set()
            assert self.opened.wait(DEADLINE_S)
        self.passed_kinds.append(int(kind))
        return kind


@pytest.fixture
def gate() -> Gate:
    gate = Gate()
    register_named_function("test_gate", gate.pass_through)
    return gate


@pytest.fixture
def server(gate: Gate) -> Iterator[ServedFunctions]:
    def make_function(kind: Kind) -> Any:
        def function(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
            asked = tf.constant(int(kind), tf.int64)
            (passed,) = tf.raw_ops.PyFunc(input=[asked], token="test_gate", Tout=[tf.int64])
            with tf.control_dependencies([passed]):
                return [tf.identity(header[:REPLY_FIELDS]), ids, payload]

        return function

    kinds = (Kind.PUSH, Kind.JOIN)
    with served({Entry(kind, 0, 1, 1): make_function(kind) for kind in kinds}, Plain()) as server:
        yield server


def _sends(
    server: ServedFunctions, kind: Kind, *, worker: int, incarnation: int
) -> threading.Thread:
    call = server.call(kind, tf.zeros([1], tf.uint8), worker=worker, incarnation=incarnation)
    thread = threading.Thread(target=lambda: server.carrier.exchange({0: call}))
    thread.start()
    return thread


@pytest.mark.parametrize("joins", [1, 2], ids=["same worker", "another worker"])
def test_a_worker_joins_after_what_it_has_begun(
    server: ServedFunctions, gate: Gate, joins: int
) -> None:
    pushes = _sends(server, Kind.PUSH, worker=1, incarnation=1)
    assert gate.entered.wait(DEADLINE_S)
    follows = _sends(server, Kind.JOIN, worker=joins, incarnation=2)
    follows.join(0.3 if joins == 1 else DEADLINE_S)
    gate.opened.set()
    for thread in (pushes, follows):
        thread.join(DEADLINE_S)
    expected = [Kind.PUSH, Kind.JOIN]
    assert gate.passed_kinds == (expected if joins == 1 else expected[::-1])


def test_what_never_ends_is_not_waited_for(
    server: ServedFunctions, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The push waits for others on the server, which refuses it when the worker joins."""
    monkeypatch.setattr(links, "UNFINISHED_EXCHANGE_TIMEOUT_S", 0.05)
    pushes = _sends(server, Kind.PUSH, worker=1, incarnation=1)
    assert gate.entered.wait(DEADLINE_S)
    _sends(server, Kind.JOIN, worker=1, incarnation=2).join(DEADLINE_S)
    assert gate.passed_kinds == [Kind.JOIN]
    gate.opened.set()
    pushes.join(DEADLINE_S)


def test_a_cancelled_closure_sends_nothing_more_once_it_is_waited_for(
    server: ServedFunctions, gate: Gate
) -> None:
    pushes = _sends(server, Kind.PUSH, worker=1, incarnation=1)
    assert gate.entered.wait(DEADLINE_S)
    ended: list[int] = []
    sender = JOB, 1, 1
    cancels = threading.Thread(target=lambda: ended.append(int(server.links.cancel(*sender))))
    cancels.start()
    cancels.join(0.3)
    assert not ended
    gate.opened.set()
    for thread in (pushes, cancels):
        thread.join(DEADLINE_S)
    assert ended == [True]
    _sends(server, Kind.PUSH, worker=1, incarnation=1).join(DEADLINE_S)
    assert gate.passed_kinds == [Kind.PUSH]
    _sends(server, Kind.PUSH, worker=1, incarnation=2).join(DEADLINE_S)
    assert gate.passed_kinds == [Kind.PUSH, Kind.PUSH]


def test_a_cancelled_exchange_that_never_ends_is_not_waited_for(
    server: ServedFunctions, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "UNFINISHED_EXCHANGE_TIMEOUT_S", 0.05)
    pushes = _sends(server, Kind.PUSH, worker=1, incarnation=1)
    assert gate.entered.wait(DEADLINE_S)
    assert not server.links.cancel(JOB, 1, 1)
    gate.opened.set()
    pushes.join(DEADLINE_S)
