"""When a served task's life ends: told by the chief, or alone for too long."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.messages import raises
from tfps.cluster import ClusterSpec, lease_ports, timeout_from_environment
from tfps.cluster.exit_status import TEMPORARY_STATUS
from tfps.cluster.timeout import CHIEF_TIMEOUT_S, DEFAULT_CHIEF_TIMEOUT_S
from tfps.errors import ConfigError
from tfps.launch import serving
from tfps.launch.serving import ServiceEnd, serve
from tfps.stop_signals import STOP_SIGNALS


def _spec(task_type: str) -> ClusterSpec:
    jobs = {"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)}
    return ClusterSpec(jobs=jobs, task_type=task_type, task_index=0)


@pytest.fixture(autouse=True)
def _quick_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REPLY_DELAY_S", 0.0)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Put the handlers of signals back: those of a task would end pytest at its next signal."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("received", "status"), [(0, 0), (1, 1), (7, 1), (75, 75), (130, 1)])
def test_the_message_ends_the_task(received: int, status: int) -> None:
    end = ServiceEnd()
    threading.Timer(0.1, end.record_status, [received]).start()
    assert end.wait(lambda: "127.0.0.1:1", chief_timeout_s=30) == status
    assert end.reason


def test_the_first_message_counts() -> None:
    end = ServiceEnd()
    end.record_status(1)
    end.record_status(0)
    assert end.wait(lambda: "127.0.0.1:1", chief_timeout_s=30) == 1


def test_a_chief_that_stays_away() -> None:
    end = ServiceEnd()
    assert end.wait(lambda: "127.0.0.1:1", chief_timeout_s=0.4) == TEMPORARY_STATUS
    assert "127.0.0.1:1 did not respond for 0.4 s" in end.reason


def test_a_chief_that_comes_back_is_waited_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([False, False, True, True, False, False])
    looks = []

    def look(_: str) -> bool:
        looks.append(next(seen, False))
        return looks[-1]

    monkeypatch.setattr(serving, "accepts_connections", look)
    end = ServiceEnd()
    assert end.wait(lambda: "c:1", chief_timeout_s=1.0) == TEMPORARY_STATUS
    # A quarter of the timeout apart; the fourth would be the last if it were not counted anew.
    assert len(looks) > 4


def test_a_chief_that_answers_is_never_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chief:
        end = ServiceEnd()
        threading.Timer(1.0, end.record_status, [0]).start()
        address = f"127.0.0.1:{chief.getsockname()[1]}"
        assert end.wait(lambda: address, chief_timeout_s=0.3) == 0


def test_only_workers_and_servers_serve() -> None:
    with raises(ConfigError, "task.type", received="'chief'", remedy="worker or ps"):
        serve(_spec("chief"))


@pytest.mark.parametrize("text", ["soon", "0", "-3", "nan"])
def test_a_wrong_timeout(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPS_CHIEF_TIMEOUT_S", text)
    with raises(ConfigError, "TFPS_CHIEF_TIMEOUT_S", received=repr(text), remedy="seconds"):
        serve(_spec("ps"))


def test_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    name, default_s = CHIEF_TIMEOUT_S, DEFAULT_CHIEF_TIMEOUT_S
    monkeypatch.delenv(name, raising=False)
    assert timeout_from_environment(name, default_s=default_s) == 600
    monkeypatch.setenv(name, "inf")
    assert timeout_from_environment(name, default_s=default_s) == float("inf")


@pytest.mark.parametrize(("host", "warned"), [("192.0.2.1", True), ("127.0.0.1", False)])
def test_an_address_of_another_machine_is_doubted(
    host: str, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be right: a service of Kubernetes forwards it."""
    with lease_ports(1) as lease:
        worker = f"{host}:{lease.ports[0]}"
    jobs = {"chief": ("c:1",), "worker": (worker,), "ps": ("p:1",)}
    spec = ClusterSpec(jobs=jobs, task_type="worker", task_index=0)
    monkeypatch.setattr(serving, "start_server", lambda _spec, end: end.record_status(0))
    monkeypatch.setattr("tfps.launch.serving.signal.signal", lambda *_: None)
    assert serve(spec, chief_timeout_s=1.0) == 0
    assert (f"worker 0: {worker} is not an address of this machine" in caplog.text) == warned
