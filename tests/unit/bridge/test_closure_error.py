"""The errors of failed closures that the coordinator gets, and which closures run again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.messages import check_message, raises
from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import (
    MAX_ATTEMPTS,
    NO_REPLY,
    NOT_A_MEMBER,
    ClosureObserver,
    is_unparsed_request_error,
    watch_closures,
)
from tfps.bridge.closures.closure_membership import ClosureMembership
from tfps.bridge.closures.failure_handler import NoServerReturn

UNREAD = tf.errors.InternalError(
    None,
    None,
    "{{function_node __inference_closure_1}} Unable to parse request\n"
    "Additional GRPC error information from remote target /job:ps/replica:0/task:1/device:CPU:0 "
    "while calling /tensorflow.eager.EagerService/RunComponentFunction:\n"
    ':UNKNOWN:Error received from peer {grpc_status:13, grpc_message:"Unable to parse request"}',
)
OTHERS = [
    tf.errors.InternalError(None, None, "Unable to parse request of the user's own format"),
    tf.errors.InvalidArgumentError(None, None, UNREAD.message),
    ValueError(UNREAD.message),
]


OF_MEMBERS = [
    tf.errors.InvalidArgumentError(None, None, f"assertion failed: [{text}] [{status}]")
    for text, status in ((NOT_A_MEMBER, 3), (NO_REPLY, 5))
]


class _Cluster:
    """The part of TensorFlow's cluster that a closure needs to be executed."""

    def __init__(self, *, recalled: bool = False) -> None:
        self.membership = _Attendance()
        self.closure_queue = SimpleNamespace(
            is_closed=False, membership=self.membership, is_recalled=lambda: recalled
        )
        self.reported: list[Exception] = []
        self.worker = SimpleNamespace(
            _cluster=self,
            worker_index=3,
            device_name="/device:CPU:0",
            executor=SimpleNamespace(clear_error=lambda: None),
            failure_handler=SimpleNamespace(servers=NoServerReturn()),
        )

    def execute(self, function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch the cluster's closures, and let the worker execute one."""

        def execute_on(closure: Any, worker: Any) -> None:
            closure.function()

        monkeypatch.setattr(private.Closure, "execute_on", execute_on)
        watch_closures(SimpleNamespace(_cluster=self), ClosureObserver(self._tell))
        private.Closure.execute_on(SimpleNamespace(function=function), self.worker)

    def _tell(self, error: Exception, graph: Any, worker: int) -> Exception:
        self.reported.append(error)
        return error


class _Attendance(ClosureMembership):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_start(self, worker: int, closure: Any) -> None:
        self.events.append("takes")

    def on_error(self, worker: int) -> None:
        self.events.append("fails")

    def on_end(self, worker: int) -> None:
        self.events.append("ends")


class _Function:
    """A function that raises one of its errors at each call, and then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)


def test_which_errors_tell_of_an_unread_request() -> None:
    assert is_unparsed_request_error(UNREAD)
    assert not any(map(is_unparsed_request_error, OTHERS))


def test_a_closure_with_an_unread_request_is_run_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, function = _Cluster(), _Function(UNREAD, UNREAD)
    with caplog.at_level(logging.WARNING):
        cluster.execute(function, monkeypatch)
    assert function.calls == 3
    assert cluster.reported == []
    # Threads that wait for the worker hear that it begins anew.
    assert cluster.membership.events == 2 * ["takes", "fails", "ends"] + ["takes", "ends"]
    assert len(caplog.records) == 2
    for attempt, record in enumerate(caplog.records, 2):
        check_message(record.message, "worker 3", received=f"(attempt {attempt} of {MAX_ATTEMPTS})")


def test_a_closure_without_an_answer_is_run_again_where_no_server_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfps.bridge.closures.closure_error.RECONNECT_AFTER_S", 0.0)
    _, no_reply = OF_MEMBERS
    cluster, function = _Cluster(), _Function(no_reply)
    cluster.execute(function, monkeypatch)
    assert function.calls == 2
    assert cluster.reported == []
    assert cluster.membership.events == ["takes", "fails", "ends", "takes", "ends"]
    function.errors = [no_reply] * 2 * MAX_ATTEMPTS
    with raises(tf.errors.UnavailableError, NO_REPLY):
        cluster.execute(function, monkeypatch)
    assert function.calls == 2 + MAX_ATTEMPTS


@pytest.mark.parametrize("error", OF_MEMBERS, ids=["no member", "no reply"])
def test_what_others_make_run_again_is_not_repeated_at_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure handler repeats closures of evicted workers and after the return of servers."""
    cluster, function = _Cluster(), _Function(error)
    monkeypatch.setattr(NoServerReturn, "is_caused_by_server_loss", lambda *_: True)
    with pytest.raises(tf.errors.OpError):
        cluster.execute(function, monkeypatch)
    assert function.calls == 1


def test_a_request_that_is_never_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, function = _Cluster(), _Function(*[UNREAD] * 2 * MAX_ATTEMPTS)
    with raises(tf.errors.InternalError, "Unable to parse request"):
        cluster.execute(function, monkeypatch)
    assert function.calls == MAX_ATTEMPTS
    assert cluster.reported == [UNREAD]


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: type(error).__name__)
def test_a_closure_that_fails_otherwise_is_not_run_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, function = _Cluster(), _Function(error)
    with pytest.raises(type(error)):
        cluster.execute(function, monkeypatch)
    assert function.calls == 1
    assert cluster.reported == [error]


def test_a_closure_that_another_worker_runs_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, function = _Cluster(recalled=True), _Function(UNREAD)
    with pytest.raises(tf.errors.InternalError):
        cluster.execute(function, monkeypatch)
    assert function.calls == 1
