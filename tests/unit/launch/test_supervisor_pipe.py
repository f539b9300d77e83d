"""The messages between a chief and the supervisor in its parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.launch.played_tasks import SPEC, TASKS, PlayedTasks
from tfps.launch.supervisor_pipe import (
    SUPERVISOR_PIPE,
    RemoteSupervisor,
    SupervisorPipe,
    find_supervisor,
)
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.restarts.task_supervisor import (
    are_restarted,
    get_supervisor,
    request_server_restarts,
    unregister_supervisor,
)

ADDRESSES = [address for _, _, address in SPEC.tasks("worker", "ps")]
OTHER, WORKER, SERVER = TASKS


@pytest.fixture
def tasks(tmp_path: Path) -> PlayedTasks:
    return PlayedTasks(tmp_path, FaultTolerance(restart_budget=1, hang_timeout_s=60.0))


@pytest.fixture
def pipe(tasks: PlayedTasks) -> Iterator[SupervisorPipe]:
    pipe = SupervisorPipe(tasks.supervisor)
    yield pipe
    pipe.close()
    unregister_supervisor(ADDRESSES)


@pytest.fixture
def chief(pipe: SupervisorPipe, monkeypatch: pytest.MonkeyPatch) -> RemoteSupervisor:
    monkeypatch.setenv(SUPERVISOR_PIPE, str(os.dup(pipe.chief_end.fileno())))
    supervisor = find_supervisor(SPEC)
    assert supervisor is not None
    assert SUPERVISOR_PIPE not in os.environ, "what the chief starts is no chief"
    return supervisor


def _die(tasks: PlayedTasks, task: tuple[str, int], *moments_s: float) -> None:
    tasks.process(task).ended = -9
    tasks.look(*moments_s)


def test_a_chief_without_a_pipe_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SUPERVISOR_PIPE, raising=False)
    assert find_supervisor(SPEC) is None
    assert not are_restarted(ADDRESSES)


def test_the_chief_hears_of_restarts_and_of_the_end(
    tasks: PlayedTasks, pipe: SupervisorPipe, chief: RemoteSupervisor
) -> None:
    assert get_supervisor(ADDRESSES) is chief
    _die(tasks, WORKER, 0.0)
    pipe.exchange()
    assert (chief.restarts, chief.end_reason, chief.give_up_reason) == (
        ["worker 1 (SIGKILL)"],
        "",
        "",
    )
    chief.restarts[0] += ", of which the chief knows more"
    _die(tasks, SERVER, 1.0)
    for _ in range(3):
        pipe.exchange()
    assert chief.restarts == ["worker 1 (SIGKILL), of which the chief knows more"]
    assert chief.end_reason == ""
    assert chief.give_up_reason.startswith("what ps 0 held is lost with it.")


def test_an_end_that_the_chief_does_not_notice(
    tasks: PlayedTasks, pipe: SupervisorPipe, chief: RemoteSupervisor
) -> None:
    for index in (0, 1):
        _die(tasks, ("worker", index), 0.0, 0.3)
        _die(tasks, ("worker", index), 1.0)
    pipe.exchange()
    assert chief.give_up_reason == ""
    assert chief.end_reason.startswith("no worker is left: worker 0, worker 1 died again after")


def test_servers_are_started_again_as_long_as_the_chief_can_use_them(
    tasks: PlayedTasks, pipe: SupervisorPipe, chief: RemoteSupervisor
) -> None:
    is_over = False
    assert request_server_restarts(ADDRESSES, not_needed=lambda: is_over) is chief
    pipe.exchange()
    _die(tasks, SERVER, 0.0, 0.3)
    assert tasks.started == [SERVER]
    is_over = True
    assert chief.end_reason == ""  # the guard asks each second
    pipe.exchange()
    _die(tasks, SERVER, 1.0)
    assert tasks.supervisor.give_up_reason.startswith("what ps 0 held is lost with it.")


def test_who_hangs_is_told_and_forgotten_with_the_chief(
    tasks: PlayedTasks, pipe: SupervisorPipe, chief: RemoteSupervisor
) -> None:
    """A worker that the chief reports for too long is killed."""
    chief.report_lost([WORKER, OTHER])
    pipe.exchange()
    tasks.look(0.0)
    chief.report_lost([OTHER])
    pipe.exchange()
    tasks.look(59.0, 60.0)
    assert tasks.process(OTHER).ended == -9
    assert tasks.process(WORKER).ended is None
    chief.report_lost([WORKER, SERVER])
    pipe.exchange()
    tasks.look(100.0)
    pipe.close()
    tasks.look(159.0, 1e6)
    assert tasks.process(WORKER).ended is None


def test_a_chief_whose_parent_is_gone_asks_in_vain(
    pipe: SupervisorPipe, chief: RemoteSupervisor
) -> None:
    pipe.close()
    chief.report_lost([WORKER])
    assert (chief.restarts, chief.end_reason) == ([], "")


def test_several_threads_of_the_chief_ask_at_once(
    tasks: PlayedTasks, pipe: SupervisorPipe, chief: RemoteSupervisor
) -> None:
    ends = threading.Event()

    def ask() -> None:
        while not ends.is_set():
            assert chief.end_reason == ""

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    tasks.supervisor.restarts += [f"worker 0 (status {number})" for number in range(200)]
    for _ in range(50):
        pipe.exchange()
    ends.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), "one of them has read what another one waits for"
    assert chief.restarts == tasks.supervisor.restarts
