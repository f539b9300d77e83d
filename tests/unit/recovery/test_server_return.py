"""Requests of the chief to a lost server: it waits, asks again, and can be told not to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tfps.bridge.closures.closure_queue import ClosureQueue
from tfps.cluster import ClusterSpec
from tfps.errors import CheckpointError
from tfps.recovery.probing.probe import Task
from tfps.recovery.probing.task_identity import TaskIdentity
from tfps.recovery.servers import new_addresses, server_identities, server_return
from tfps.recovery.servers.new_addresses import NewAddresses
from tfps.recovery.servers.server_identities import ServerIdentities
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.recovery.servers.server_return import ServerReturn

DEADLINE_S = 30.0
GONE = TaskIdentity(is_gone=True, process_incarnation=None)
AT_FIRST, ELSEWHERE = "127.0.0.1:1", "127.0.0.1:2"
CLUSTER = ClusterSpec(
    jobs={"chief": ("127.0.0.1:3",), "worker": ("127.0.0.1:4",), "ps": (AT_FIRST,)}
)


class Machine:
    """One server, which the test kills and starts again."""

    def __init__(self) -> None:
        self.identity = TaskIdentity(is_gone=False, process_incarnation=1)
        self.value = 7
        self.restored = 0
        self.refusal: CheckpointError | None = None
        self.all_are_out = threading.Event()  # workers, of what functions take part in
        self.found: list[tuple[list[str], frozenset[int]]] = []  # by workers, before it is filled
        self.address = self.resolved = AT_FIRST
        self.moves: list[tuple[Task, str]] = []
        self.problems: dict[int | None, str] = {}  # by incarnations that cannot take part

    def ask_identities(
        self, addresses: dict[Task, str], *, deadline_s: float
    ) -> dict[Task, TaskIdentity]:
        return {
            task: self.identity if address == self.address else GONE
            for task, address in addresses.items()
        }

    def resolve(self) -> ClusterSpec:
        return CLUSTER.with_address("ps", 0, self.resolved)

    def find_incompatibility(self, _server: Any) -> str:
        return self.problems.get(self.identity.process_incarnation, "")

    def read(self) -> int:
        if self.identity is GONE:
            raise tf.errors.UnavailableError(None, None, "connection refused")
        return self.value

    def start_again(self) -> None:
        self.value = 0  # until it is filled
        self.identity = TaskIdentity(is_gone=False, process_incarnation=2)

    def let_all_out(self) -> None:
        assert not self.restored
        self.all_are_out.set()

    def reconnect_servers(
        self, servers: list[str], *, without: frozenset[int], patience_s: float
    ) -> None:
        assert not self.restored
        self.found.append((servers, without))

    waits_for_servers = True

    def evict_workers(self) -> None:
        """Do nothing: no closure of these tests takes part in a round."""

    def server_is_back(self, index: int) -> None:
        """Do nothing: no guard of these tests probes."""

    def refuse_loss(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def restore(self, *_: Any) -> list[ServerLoss]:
        self.restored += 1
        self.value = 7
        return [ServerLoss(0, checkpoint=1, restored_updates=7, updates=9, seconds=0.0)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(server_identities, "ask_identities", machine.ask_identities)
    monkeypatch.setattr(new_addresses, "ask_identities", machine.ask_identities)
    monkeypatch.setattr(new_addresses, "ASK_INTERVAL_S", 0.0)
    return machine


@pytest.fixture
def servers(machine: Machine) -> Iterator[ServerReturn]:
    server: Any = SimpleNamespace(index=0, address=AT_FIRST, device="/job:ps/task:0", lost=None)
    server.set_wait_for_return = lambda _: None
    runtime: Any = SimpleNamespace(
        processes={("ps", 0): AT_FIRST},
        servers=[server],
        closed=False,
        container="tests/return",
        hang_up=lambda _: None,
        function_tables=machine,
        data_plane=machine,
        find_incompatibility=lambda _: "",
        set_task_address=lambda _, address: setattr(runtime.servers[0], "address", address),
        membership=SimpleNamespace(evict_all=machine.let_all_out),
    )
    elsewhere = NewAddresses(machine.resolve, cluster=lambda: CLUSTER, deadline_s=0.1)
    servers = ServerReturn(runtime, ServerIdentities(runtime, elsewhere, deadline_s=0.1), machine)
    failures: Any = SimpleNamespace(
        reconnect=lambda: True,
        lost_workers=frozenset({1}),
        excluded_workers=frozenset({3}),
        set_task_address=lambda task, address: machine.moves.append((task, address)),
    )
    servers.watch_closures(ClosureQueue(), failures)
    yield servers
    runtime.closed = True
    for thread in _returns():
        thread.join(DEADLINE_S)


def _returns() -> list[threading.Thread]:
    """The threads that bring servers back."""
    return [thread for thread in threading.enumerate() if thread.name == "tfps-server-return"]


def test_nobody_waits_for_who_waits_for_the_return(servers: ServerReturn, machine: Machine) -> None:
    """All workers are evicted while functions still run, which may wait for one of them."""
    servers.enter()
    machine.identity = GONE
    servers.begin_return(0, "it is gone")
    assert machine.all_are_out.wait(DEADLINE_S)
    assert machine.restored == 0
    machine.start_again()
    servers.leave()
    servers.wait_for_return()
    assert machine.restored == 1


def test_who_reads_waits_for_the_return(servers: ServerReturn, machine: Machine) -> None:
    machine.identity = GONE
    again = threading.Timer(0.3, machine.start_again)
    again.start()
    assert servers.repeat(machine.read) == 7
    assert machine.found == [(["/job:ps/task:0"], frozenset({1, 3}))]
    assert machine.restored == 1
    again.join()


def test_a_server_is_followed_to_where_it_is_now(servers: ServerReturn, machine: Machine) -> None:
    machine.identity = GONE
    reads, errors = _in_thread(lambda: servers.repeat(machine.read))
    servers.begin_return(0, "The server is gone.")
    machine.address = machine.resolved = ELSEWHERE
    machine.start_again()
    reads.join(DEADLINE_S)
    assert not reads.is_alive()
    assert errors == []
    assert machine.moves == [(("ps", 0), ELSEWHERE)]
    assert machine.restored == 1


def test_nobody_asks_for_a_server_that_is_where_it_was(
    servers: ServerReturn, machine: Machine
) -> None:
    machine.resolved = ELSEWHERE
    machine.start_again()
    servers.begin_return(0, "The server is gone.")
    assert servers.repeat(machine.read) == 7
    assert machine.moves == []


def test_a_server_that_does_not_fit_is_waited_for_still(
    servers: ServerReturn, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait ends when one that fits comes, at its address or at another one."""
    machine.problems[2] = "ps 0 has another secret"
    machine.start_again()
    servers.begin_return(0, "The server is gone.")
    reads, errors = _in_thread(lambda: servers.repeat(machine.read))
    while "ps 0 has another secret" not in caplog.text:
        time.sleep(0.01)
    machine.address = machine.resolved = ELSEWHERE
    machine.identity = TaskIdentity(is_gone=False, process_incarnation=3)
    reads.join(DEADLINE_S)
    assert not reads.is_alive()
    assert errors == []
    assert caplog.text.count("another secret") == 1
    assert (machine.moves, machine.restored) == ([(("ps", 0), ELSEWHERE)], 1)


def test_what_was_read_before_it_was_filled_does_not_count(
    servers: ServerReturn, machine: Machine
) -> None:
    def read() -> int:
        if not machine.restored:
            machine.start_again()
            found = machine.read()
            servers.begin_return(0, "The server is gone.")
            return found
        return machine.read()

    assert servers.repeat(read) == 7


def test_an_error_of_ones_own_is_raised(servers: ServerReturn) -> None:
    def read() -> int:
        raise tf.errors.InvalidArgumentError(None, None, "wrong shape")

    with pytest.raises(tf.errors.InvalidArgumentError, match="wrong shape"):
        servers.repeat(read)


@pytest.mark.parametrize("kind", [tf.errors.FailedPreconditionError, tf.errors.UnavailableError])
def test_a_server_that_is_there_without_its_variables_is_lost(
    servers: ServerReturn, machine: Machine, kind: Any
) -> None:
    """A worker may reach it by TensorFlow's RPC before the chief knows that it was restarted."""
    error = kind(None, None, "Could not find variable slabs/1.")
    assert not servers.is_caused_by_server_loss(error)
    machine.start_again()
    assert servers.is_caused_by_server_loss(error)


def _in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except tf.errors.UnavailableError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_the_end_of_the_strategy_ends_the_wait(servers: ServerReturn, machine: Machine) -> None:
    assert not servers.end("nothing is lost")
    machine.identity = GONE
    reads, of_reader = _in_thread(lambda: servers.repeat(machine.read))
    closes, of_closure = _in_thread(servers.enter)
    servers.begin_return(0, "The server is gone.")
    assert _returns()
    assert servers.end("strategy.close() was called")
    for thread in (reads, closes):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    for error in of_reader + of_closure:
        assert "The job no longer waits for it: strategy.close() was called." in str(error)
    assert of_reader
    assert not _returns()


def test_who_is_not_started_again_is_not_waited_for(
    servers: ServerReturn, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor: Any = SimpleNamespace(give_up_reason="")
    monkeypatch.setattr(server_return, "get_supervisor", lambda _: supervisor)
    machine.identity = GONE
    reads, of_reader = _in_thread(lambda: servers.repeat(machine.read))
    servers.begin_return(0, "The server is gone.")
    supervisor.give_up_reason = "ps 0 died again after its budget of 3 restarts"
    reads.join(DEADLINE_S)
    assert not reads.is_alive()
    assert "It is not restarted: ps 0 died again after its budget" in str(of_reader[0])


def test_what_cannot_go_on_does_not_wait_until_it_is_started_again(
    servers: ServerReturn, machine: Machine
) -> None:
    machine.refusal = CheckpointError("functions are not repeated")
    machine.identity = GONE
    reads, of_reader = _in_thread(lambda: servers.repeat(machine.read))
    servers.begin_return(0, "The server is gone.")
    reads.join(DEADLINE_S)
    assert not reads.is_alive()
    assert "It cannot be restored: functions are not repeated" in str(of_reader[0])
    assert machine.restored == 0


def test_a_server_that_goes_on_with_what_it_had_is_not_refused(
    servers: ServerReturn, machine: Machine
) -> None:
    machine.refusal = CheckpointError("functions are not repeated")
    servers.begin_return(0, "The server does not respond.")
    assert servers.repeat(machine.read) == 7
    assert machine.restored == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_while_it_is_filled_ends_the_wait(
    servers: ServerReturn, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other thread would end it."""

    def fail(*_: Any) -> list[ServerLoss]:
        raise RuntimeError("an odd state")

    monkeypatch.setattr(machine, "restore", fail)
    machine.identity = GONE
    reads, of_reader = _in_thread(lambda: servers.repeat(machine.read))
    servers.begin_return(0, "The server is gone.")
    machine.start_again()
    reads.join(DEADLINE_S)
    assert not reads.is_alive()
    assert "It cannot be restored: RuntimeError('an odd state')" in str(of_reader[0])
