"""Waiting for tasks: the missing ones are named in time, with the reason."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.messages import check_message, raises
from tfps.cluster import ClusterSpec, accepts_connections, wait_for_tasks, waiting
from tfps.errors import ConnectTimeout, TaskFailed


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def _address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def _spec(*, worker: str, ps: str) -> ClusterSpec:
    return ClusterSpec(jobs={"chief": ("c.invalid:1",), "worker": (worker,), "ps": (ps,)})


def test_returns_when_all_listen(listener: socket.socket) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as second:
        port = second.getsockname()[1]
        spec = _spec(worker=_address(listener), ps=f"[::1]:{port}")
        wait_for_tasks(spec, timeout_s=5)  # it does not wait for the chief


def test_waits_for_one_task_alone(listener: socket.socket) -> None:
    jobs = {"chief": ("c.invalid:1",), "worker": ("w.invalid:1", _address(listener))}
    spec = ClusterSpec(jobs={**jobs, "ps": ("p.invalid:1",)})
    wait_for_tasks(spec, timeout_s=5, task_types=["worker"], index=1)
    with raises(ConnectTimeout, "worker 0", received="w.invalid:1", remedy="connect_timeout_s"):
        wait_for_tasks(spec, timeout_s=0.1, task_types=["worker"], index=0)


def test_names_every_missing_task_with_its_reason(listener: socket.socket) -> None:
    address = _address(listener)
    listener.close()
    spec = _spec(worker=address, ps="no-such-host.invalid:2222")
    with pytest.raises(ConnectTimeout) as raised:
        wait_for_tasks(spec, timeout_s=0.2)
    for task, reason in (
        (f"worker 0 at {address}", "connection refused"),
        ("ps 0 at no-such-host.invalid:2222", "the name no-such-host.invalid"),
    ):
        check_message(str(raised.value), task, received=reason, remedy="connect_timeout_s")
    assert isinstance(raised.value, TimeoutError)


def test_a_name_that_resolves_late(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, asked = socket.getaddrinfo, []

    def late(host: str, *arguments: object, **keywords: object) -> object:
        if host == "worker-0.job":
            asked.append(host)
            if len(asked) < 3:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = "127.0.0.1"
        return resolve(host, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", late)
    port = listener.getsockname()[1]
    wait_for_tasks(_spec(worker=f"worker-0.job:{port}", ps=_address(listener)), timeout_s=10)
    assert len(asked) == 3


def test_says_regularly_who_is_missing(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "REPORT_INTERVAL_S", 0.2)
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        threading.Timer(0.9, late.listen).start()
        said: list[str] = []
        spec = _spec(worker=_address(listener), ps=_address(late))
        wait_for_tasks(spec, timeout_s=10, report=said.append)
    assert 2 <= len(said) <= 5
    for line in said:
        check_message(line, f"ps 0 at {spec.address('ps', 0)}", received="of 10 s")
        assert "worker" not in line


def test_the_default_is_a_report_every_ten_seconds() -> None:
    assert waiting.REPORT_INTERVAL_S == 10
    assert waiting.CONNECT_TIMEOUT_S == 300


def test_a_check_stops_the_waiting(listener: socket.socket) -> None:
    def check() -> None:
        raise TaskFailed("worker 0 ended with status 1")

    with raises(TaskFailed, "worker 0", received="status 1"):
        wait_for_tasks(_spec(worker="c.invalid:1234", ps="c.invalid:2222"), check=check)


def test_many_hosts_that_drop_packets_cost_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(32, timeout=60)

    def silent(address: str, *, timeout_s: float = 0.0) -> str:
        together.wait()  # fails unless all of them are being tried
        return "no response"

    monkeypatch.setattr(waiting, "connection_problem", silent)
    missing = waiting.missing_tasks([("worker", index, "h:1") for index in range(32)])
    assert len(missing) == 32


def test_a_connection_to_itself_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the kernel makes of a connection to a free port in the range of its outgoing ports.
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.connect(own.getsockname())
        monkeypatch.setattr(socket, "create_connection", lambda *_, **__: own)
        assert not accepts_connections("127.0.0.1:9")
