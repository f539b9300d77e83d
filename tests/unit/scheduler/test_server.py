"""A scheduler and its tasks, all in this process: what the tasks are told, and what is refused."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import tfps
from tests.messages import check_message, raises
from tfps.cluster import ClusterSpec, lease_ports
from tfps.cluster.address import join_address, split_address
from tfps.errors import ConfigError, ConnectTimeout, ListenError
from tfps.package_versions import task_versions
from tfps.scheduler import client, places, server
from tfps.scheduler.client import SchedulerConnection
from tfps.scheduler.places import Places
from tfps.scheduler.server import JOIN_REQUEST, SchedulerServer
from tfps.scheduler.settings import SchedulerSettings
from tfps.transport.direct.handshake import authenticate_client
from tfps.transport.direct.hello import Hello

pytestmark = pytest.mark.timeout(120)
DEADLINE_S = 60
Join = Callable[..., "Future[dict[str, Any]]"]
MakeScheduler = Callable[..., "_Scheduler"]


class _Scheduler:
    """A scheduler for two workers and a server, and what it reports."""

    def __init__(self, address: str, *, secret: bytes = b"", versions: Any = None) -> None:
        self.address, self.has_ended = address, False
        self.lines: list[str] = []
        self.ends: list[int] = []
        self.server = SchedulerServer(
            address,
            Places.of_cluster(workers=2, servers=1, started_s=time.monotonic()),
            secret=secret,
            versions=versions or task_versions(),
            report=self.lines.append,
            on_end=self.ends.append,
        )

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=20) as reply:
            return str(reply.read().decode())

    def end(self, status: int = 0) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.server.end(status)

    def die(self) -> None:
        """End as a process that is killed: its connections end without a word."""
        self.has_ended = True
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.server._connections.values()):
            connection.shutdown(socket.SHUT_RDWR)

    def places(self) -> dict[str, str]:
        """The state of each place, by its name."""
        places = json.loads(self.get("/cluster"))["places"]
        return {f"{place['role']} {place['index']}": place["state"] for place in places}


@pytest.fixture(params=["127.0.0.1"])
def address(request: pytest.FixtureRequest) -> str:
    with lease_ports(1, host=request.param) as lease:
        return join_address(request.param, lease.ports[0])


@pytest.fixture
def join(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Join]:
    """Start a task; return its future `TF_CONFIG`, and the task itself as ``membership``."""
    for variable in ("TFPS_CONNECT_TIMEOUT_S", "TFPS_CHIEF_TIMEOUT_S"):
        monkeypatch.setenv(variable, str(DEADLINE_S))
    tasks: list[SchedulerConnection] = []
    with ThreadPoolExecutor(8) as pool:

        def start(role: str | None = None, **settings: Any) -> Future[dict[str, Any]]:
            task = SchedulerConnection(SchedulerSettings(scheduler=address, role=role, **settings))
            tasks.append(task)
            future = pool.submit(task.wait_for_cluster)
            future.membership = task  # type: ignore[attr-defined]
            return future

        yield start
        for task in tasks:
            task.close()


@pytest.fixture
def make_scheduler(join: Join, address: str) -> Iterator[MakeScheduler]:
    """Start a scheduler; at the end of the test it ends, and with it the tasks that wait."""
    made: list[_Scheduler] = []

    def make(**arguments: Any) -> _Scheduler:
        made.append(_Scheduler(address, **arguments))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def scheduler(make_scheduler: MakeScheduler) -> _Scheduler:
    return make_scheduler()


def _wait(is_true: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def _join_all(join: Join) -> list[SchedulerConnection]:
    """Return the tasks of a job, the chief first, that have joined and follow the scheduler."""
    futures = [join("chief"), join(), join(), join()]
    for future in futures:
        future.result(DEADLINE_S)
        future.membership.follow()  # type: ignore[attr-defined]
    return [future.membership for future in futures]  # type: ignore[attr-defined]


def _register(scheduler: str, *, text: str = "", **values: Any) -> socket.socket:
    """Register as a task of another implementation, without its checks."""
    value = {"role": None, "index": None, "address": "127.0.0.1:8", "is_return": False}
    text = text or json.dumps({**value, "versions": task_versions(), **values})
    peer = socket.create_connection(split_address(scheduler), timeout=20)
    peer.sendall(JOIN_REQUEST)
    hello = Hello(job=0, worker=0, incarnation=0, role="x", plan=text)
    authenticate_client(peer, hello, secret=b"", deadline_s=time.monotonic() + 20)
    return peer


def _knows(task: SchedulerConnection, jobs: dict[str, list[str]]) -> bool:
    """Return whether a task has been told a cluster."""
    return task.has_given(ClusterSpec.from_tf_config({"cluster": jobs}))


@pytest.mark.quick("127*")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"], indirect=True)
def test_tasks_that_know_one_address_learn_all(scheduler: _Scheduler, join: Join) -> None:
    futures = [join("chief"), join(), join(), join("worker", index=1), join("evaluator")]
    configs = [future.result(DEADLINE_S) for future in futures]
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    cluster = configs[0]["cluster"]
    assert {role: len(addresses) for role, addresses in cluster.items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    tasks = [(config["task"]["type"], config["task"]["index"]) for config in configs]
    assert tasks[0] == ("chief", 0)
    assert {*tasks[1:3]} == {("ps", 0), ("worker", 0)}
    assert tasks[3:] == [("worker", 1), ("evaluator", 0)]
    host = scheduler.address.rpartition(":")[0]
    assert all(each.startswith(f"{host}:") for each in (*cluster["worker"], *cluster["chief"]))
    assert scheduler.get("/healthz") == "ok\n"
    shown = json.loads(scheduler.get("/cluster"))
    assert shown["is_complete"]
    assert {place["state"] for place in shown["places"]} == {"held"}
    assert shown["places"][-1]["role"] == "evaluator"
    assert shown["places"][-1]["address"] is None, "it listens nowhere"
    assert "evaluator 0 has come" in scheduler.lines
    assert {place["versions"]["tfps"] for place in shown["places"]} == {task_versions()["tfps"]}

    assert scheduler.server.has_chief
    futures[1].membership.send_end(0)  # type: ignore[attr-defined]
    futures[0].membership.send_end(75)  # type: ignore[attr-defined]
    _wait(lambda: bool(scheduler.ends))
    assert scheduler.ends == [75], "only the chief ends the job"
    futures[0].membership.close()  # type: ignore[attr-defined]
    _wait(lambda: scheduler.places()["chief 0"] == "lost")
    assert not scheduler.server.has_chief


def test_one_task_too_many(scheduler: _Scheduler, join: Join) -> None:
    first = join("chief")
    _wait(lambda: "1" in scheduler.get("/cluster").partition('"waiting": ')[2][:1])
    with raises(ConfigError, "the scheduler at", received="one more chief", remedy="stop"):
        join("chief").result(DEADLINE_S)
    assert not first.done(), "the job goes on"
    assert any("refused a task" in line for line in scheduler.lines)


def test_other_versions(join: Join, make_scheduler: MakeScheduler) -> None:
    versions = {**task_versions(), "keras": "2.1.0", "tensorflow": None}  # none where it runs
    make_scheduler(versions=versions)
    with raises(ConfigError, "versions", received="keras", remedy="here 2.1.0"):
        join("worker").result(DEADLINE_S)


def test_a_wrong_secret(
    join: Join, make_scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = make_scheduler(secret=b"correct horse")
    monkeypatch.setenv("TFPS_JOB_SECRET", "battery staple")
    with raises(ConfigError, "the scheduler at", received="refused", remedy="TFPS_JOB_SECRET"):
        join("worker").result(DEADLINE_S)
    assert "missing" in scheduler.get("/cluster")
    assert "horse" not in scheduler.get("/cluster")
    monkeypatch.setattr(server, "is_loopback", lambda _: False)
    assert "missing" in scheduler.get("/cluster"), "also by the machine's network address"
    peer = ("127.0.0.3", 0)  # another machine
    with socket.create_connection(split_address(scheduler.address), 20, peer) as sock:
        sock.sendall(b"GET /cluster HTTP/1.0\r\n\r\n")
        assert b" 403 " in sock.recv(1000)
    assert scheduler.get("/healthz") == "ok\n"
    monkeypatch.setenv("TFPS_JOB_SECRET", "correct horse")
    join("worker", index=0)
    _wait(lambda: scheduler.server.describe()["places"][1]["state"] == "held")


def test_readers_prove_the_secret_too(
    join: Join, make_scheduler: MakeScheduler, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tfps.attach` asks from any machine, and finds the servers' data ports as well."""
    with raises(ConnectTimeout, "the scheduler at", received="refused", remedy="tfps scheduler"):
        tfps.attach("night", scheduler=address)
    make_scheduler(secret=b"horse")
    monkeypatch.setattr(server, "is_loopback", lambda _: False)
    monkeypatch.setenv("TFPS_JOB_SECRET", "horse")
    with raises(ConnectTimeout, "the scheduler at", received="no address of ps 0", remedy="wait"):
        tfps.attach("night", scheduler=address)
    others = [join("chief"), join("worker"), join("worker")]
    ps = join("ps", port=9, host="127.0.0.2")
    ps.result(DEADLINE_S)
    ps.membership.follow()  # type: ignore[attr-defined]
    with raises(ConnectTimeout, "ps 0", received="127.0.0.2:9", remedy="cluster.ps"):
        tfps.attach("night", scheduler=address)
    with raises(ConfigError, "scheduler, secret", received="refused", remedy="TFPS_JOB_SECRET"):
        tfps.attach("night", scheduler=address, secret="donkey")
    assert all(other.done() for other in others)


def test_the_scheduler_of_an_attachment_is_checked() -> None:
    with pytest.raises(ConfigError) as caught:
        tfps.attach("night", ["a:1"], scheduler="a")
    check_message(str(caught.value), "scheduler", received="'a'", remedy="host:port")
    check_message(str(caught.value), "addresses", received="beside", remedy="one of both")


def test_a_scheduler_that_is_not_there_yet_and_one_that_comes_back(
    join: Join,
    make_scheduler: MakeScheduler,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for module in (client, server):
        monkeypatch.setattr(module, "REPORT_INTERVAL_S", 0.3)
    worker = join("worker", index=1)
    said = []

    def has_said(text: str) -> bool:
        said.append(capfd.readouterr().err)
        return text in "".join(said)

    _wait(lambda: has_said(f"waiting for the scheduler at {address} (connection refused) ("))
    first = make_scheduler()
    _wait(lambda: has_said("waiting for chief 0, worker 0, ps 0 ("))
    first.die()
    second = make_scheduler()
    _wait(lambda: second.places()["worker 1"] == "held")
    others = [join("chief", index=0), join("worker", index=0), join("ps", index=0)]
    assert worker.result(DEADLINE_S)["task"] == {"type": "worker", "index": 1}
    assert [other.result(DEADLINE_S)["task"]["index"] for other in others] == [0, 0, 0]


@pytest.mark.rare
def test_a_scheduler_and_a_worker_die_together(
    join: Join, make_scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others register again; a newcomer takes no place of theirs, and all learn its address."""
    monkeypatch.setattr(places, "GRACE_S", 3.0)
    first = make_scheduler()
    futures = {"chief 0": join("chief")} | {
        name: join(name.split()[0], index=int(name[-1]))
        for name in ("worker 0", "worker 1", "ps 0")
    }
    known = {name: future.result(DEADLINE_S)["cluster"] for name, future in futures.items()}
    tasks = {name: future.membership for name, future in futures.items()}  # type: ignore[attr-defined]
    for task in tasks.values():
        task.follow()
    tasks["chief 0"].tell(alive=[("worker", 0), ("ps", 0)])
    tasks.pop("worker 1").close()
    _wait(lambda: first.places()["worker 1"] == "lost")
    first.die()
    second = make_scheduler()
    newcomer = join(None)
    _wait(lambda: [*second.places().values()].count("held") == 3)
    assert not newcomer.done()
    assert newcomer.result(DEADLINE_S)["task"] == {"type": "worker", "index": 1}
    jobs = newcomer.result()["cluster"]
    before = known["chief 0"]
    assert jobs["worker"][1] != before["worker"][1]
    assert {**jobs, "worker": jobs["worker"][:1]} == {**before, "worker": before["worker"][:1]}
    for task in tasks.values():
        _wait(partial(_knows, task, jobs))
        assert _knows(task, before)
    tasks.pop("chief 0").close()
    newcomer.membership.close()  # type: ignore[attr-defined]
    _wait(lambda: [*second.places().values()].count("lost") == 2)
    chief = join("chief")
    _wait(lambda: second.places()["chief 0"] == "held")
    worker = join("worker")
    # A new chief connects to all tasks, and so waits until it can know them.
    assert chief.result(DEADLINE_S)["cluster"] == worker.result(DEADLINE_S)["cluster"]


@pytest.mark.rare
def test_a_newcomer_gets_the_place_of_a_task_that_hangs(
    join: Join, scheduler: _Scheduler, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SILENCE_S", 4)
    monkeypatch.setattr(client, "HEARTBEAT_S", 1.0)
    hangs = _register(address, role="worker", index=0, address="127.0.0.1:9")
    chief, *others = [join("chief"), join("worker", index=1), join("ps")]
    for task in (chief, *others):
        task.result(DEADLINE_S)
        task.membership.follow()  # type: ignore[attr-defined]
    chief.membership.tell(alive=[("worker", 0), ("worker", 1), ("ps", 0)])  # type: ignore[attr-defined]
    with raises(ConfigError, "index", received="0", remedy="worker 0 at 127.0.0.1:9 is alive"):
        join("worker", index=0).result(DEADLINE_S)
    time.sleep(5)
    newcomer = join("worker", index=0)
    _wait(lambda: json.loads(scheduler.get("/cluster"))["waiting"] == 1)
    chief.membership.tell(alive=[("worker", 1), ("ps", 0)])  # type: ignore[attr-defined]
    assert newcomer.result(DEADLINE_S)["task"] == {"type": "worker", "index": 0}
    hangs.settimeout(DEADLINE_S)
    while hangs.recv(1000):  # it learns that it has lost its place
        pass
    assert [line for line in scheduler.lines if "gone" in line] == [
        "worker 0 at 127.0.0.1:9 is gone"
    ]


@pytest.mark.slow
def test_a_scheduler_that_was_stopped_takes_no_task_for_silent(
    scheduler: _Scheduler, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SILENCE_S", 4)
    with _register(address, role="worker", index=0, address="127.0.0.1:9"):
        _wait(lambda: scheduler.places()["worker 0"] == "held")
        with scheduler.server._lock:
            time.sleep(5)
        time.sleep(1)
        assert scheduler.places()["worker 0"] == "held"
        _wait(lambda: scheduler.places()["worker 0"] == "lost")


def test_a_name_that_resolves_later(
    join: Join,
    scheduler: _Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Managers of machines create the names of a job's tasks one by one."""
    monkeypatch.setattr(client, "REPORT_INTERVAL_S", 0.3)
    connect, resolves = socket.create_connection, threading.Event()

    def create_connection(*arguments: Any, **options: Any) -> socket.socket:
        if not resolves.is_set():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return connect(*arguments, **options)

    monkeypatch.setattr(socket, "create_connection", create_connection)
    join("worker", index=0)
    _wait(lambda: "(name or service not known)" in capfd.readouterr().err)
    resolves.set()
    _wait(lambda: scheduler.server.describe()["places"][1]["state"] == "held")


def test_the_end_of_the_job_ends_tasks_that_wait(
    scheduler: _Scheduler, join: Join, address: str
) -> None:
    worker = join("worker")
    _wait(lambda: json.loads(scheduler.get("/cluster"))["waiting"] == 1)
    scheduler.end(1)
    with pytest.raises(SystemExit) as caught:
        worker.result(DEADLINE_S)
    assert caught.value.code == 1


def test_tasks_of_which_the_chief_does_not_know_learn_the_end(
    scheduler: _Scheduler, join: Join
) -> None:
    """A task that has come shortly before the end is not among those that the chief tells."""
    told: list[int] = []
    tasks = _join_all(join)
    tasks[1].on_end(told.append)
    tasks[0].send_end(5)
    _wait(lambda: scheduler.ends == [5])
    scheduler.end(1)
    _wait(lambda: told == [1])
    _wait(lambda: tasks[2]._status == 1)
    tasks[2].on_end(told.append)
    assert told == [1, 1], "also one that asks later"


def test_a_scheduler_that_gives_up_ends_no_task_that_serves(
    scheduler: _Scheduler, join: Join
) -> None:
    """It may be cut off from a chief that trains."""
    task = _join_all(join)[1]
    scheduler.end(75)
    scheduler.die()
    _wait(lambda: not task._is_joined)
    assert task._status is None


def test_tasks_tell_the_end_that_a_scheduler_did_not_hear(
    scheduler: _Scheduler, join: Join
) -> None:
    tasks = _join_all(join)
    tasks[0].close()
    _wait(lambda: not scheduler.server.has_chief)
    tasks[1].send_end(0)
    _wait(lambda: scheduler.ends == [0])


def test_tasks_do_not_wait_without_end(
    scheduler: _Scheduler, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TFPS_CONNECT_TIMEOUT_S", "TFPS_CHIEF_TIMEOUT_S"):
        monkeypatch.setenv(variable, "0.5")
    variable = "TFPS_CONNECT_TIMEOUT_S"
    with raises(ConnectTimeout, variable, received="0.5 s", remedy="TFPS_SCHEDULER"):
        join("chief").result(DEADLINE_S)
    with pytest.raises(SystemExit) as caught:
        join("ps").result(DEADLINE_S)
    assert caught.value.code == 75


def test_other_peers_do_not_disturb(scheduler: _Scheduler, address: str) -> None:
    host, _, port = address.partition(":")
    with contextlib.ExitStack() as stack:
        for data in (b"", b"\0" * 100, JOIN_REQUEST + b"x" * 200, b"PUT / HTTP/1.1\r\n\r\n"):
            peer = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            peer.sendall(data)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            scheduler.get("/")
        assert set(scheduler.places().values()) == {"missing"}


UNREADABLE = [
    "null", "5", "[" * 60_000, '{"alive": 5}', '{"alive": [5]}', '{"cluster": 5}',
    '{"cluster": {"chief": [5], "worker": ["a", "b"], "ps": ["c"]}}',
]  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: text[:20])
def test_unreadable_messages_end_a_connection(
    scheduler: _Scheduler, address: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with _register(address, role="worker", index=0, address="127.0.0.1:9") as peer:
        _wait(lambda: scheduler.places()["worker 0"] == "held")
        peer.sendall(text.encode() + b"\n")
        while peer.recv(1000):
            pass
    _wait(lambda: scheduler.places()["worker 0"] == "lost")
    assert "no message of a task: " in scheduler.lines[1]
    assert "Traceback" not in capfd.readouterr().err
    assert not scheduler.server._connections
    with _register(address, text="[" * 60_000) as peer:
        assert "invalid json" in str(peer.recv(1000))


def test_control_characters_of_a_peer_are_not_shown(scheduler: _Scheduler, address: str) -> None:
    versions = {**task_versions(), "extra": "1\x1b[31m\nred"}
    with _register(address, role="worker", index=0, address="127.0.0.1:9", versions=versions):
        _wait(lambda: scheduler.places()["worker 0"] == "held")
        shown = scheduler.server.describe()["places"][1]["versions"]
        assert shown["extra"] == "1?[31m?red"
        with _register(address, text="\x1b[31m") as peer:
            peer.recv(1000)
        with _register(address, versions={**versions, "tfps": "1\nline"}) as peer:
            peer.recv(1000)
    assert "".join(scheduler.lines).isprintable()


def test_unregistered_connections_are_few_and_have_little_time(
    scheduler: _Scheduler, join: Join, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_UNREGISTERED", 3)
    task = _register(address, role="worker", index=0, address="127.0.0.1:9")
    _wait(lambda: scheduler.places()["worker 0"] == "held")
    with contextlib.ExitStack() as stack:
        connect = partial(socket.create_connection, split_address(address), timeout=20)
        silent = [stack.enter_context(connect()) for _ in range(4)]
        assert silent[3].recv(1) == b"", "one too many"
        monkeypatch.setattr(server, "UNREGISTERED_S", 1.0)
        with contextlib.suppress(OSError):  # the end, at which the scheduler closes it
            for _ in range(100):  # never silent for long
                silent[0].sendall(b"G")
                time.sleep(0.1)
            raise AssertionError("still open")
        assert silent[1].recv(1) == b""
    _wait(lambda: scheduler.get("/healthz") == "ok\n")
    assert scheduler.places()["worker 0"] == "held", "a task may stay"
    task.close()


def test_a_second_scheduler_at_a_port(scheduler: _Scheduler) -> None:
    with raises(ListenError, "--listen", received=scheduler.address, remedy="end the process"):
        _Scheduler(scheduler.address)


@pytest.mark.parametrize("address", ["192.0.2.1:7000", "no-such-machine.invalid:7000"])
def test_an_address_of_another_machine(address: str) -> None:
    with raises(ListenError, "--listen", received=address, remedy="0.0.0.0:7000"):
        _Scheduler(address)
