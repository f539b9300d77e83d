"""The supervisor and tasks that hang; the test plays the tasks and the clock."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.unit.launch.played_tasks import TASKS, PlayedTasks
from tfps.recovery.fault_tolerance import FaultTolerance

RESTARTS = FaultTolerance(restart_budget=1, hang_timeout_s=60.0, no_worker_timeout_s=600.0)
WORKER, SERVER = TASKS[1], TASKS[2]


@pytest.fixture
def tasks(tmp_path: Path) -> PlayedTasks:
    return PlayedTasks(tmp_path, RESTARTS)


def test_a_worker_that_the_guard_holds_lost_for_too_long_is_started_again(
    tasks: PlayedTasks,
) -> None:
    tasks.supervisor.report_lost([WORKER])
    tasks.look(10.0, 69.0)
    assert (tasks.said, tasks.started) == ([], [])
    tasks.look(70.0, 70.1, 70.4)
    assert tasks.started == [WORKER]
    assert tasks.said == [
        "worker 1 did not respond for 60 s, ended by SIGKILL and is started again in 250 ms "
        "(restart 1 of 1)"
    ]
    assert tasks.supervisor.restarts == ["worker 1 (hung, SIGKILL)"]
    [died] = [record for record in tasks.events.read() if record.event == "task_died"]
    assert (died.task, died.status, died.restarts) == ("worker 1", -9, 1)
    assert died.reason == "did not respond for 60 s"
    # The next one is not known to hang before it has listened, whatever the guard says of the last.
    tasks.look(71.0, 200.0)
    assert len(tasks.said) == 1


def test_one_that_answers_in_time_is_left_alone(tasks: PlayedTasks) -> None:
    for begins_s in (0.0, 59.0, 118.0):
        tasks.supervisor.report_lost([WORKER])
        tasks.look(begins_s, begins_s + 58.0)
        tasks.supervisor.report_lost([])
        tasks.look(begins_s + 59.0)
    assert (tasks.said, tasks.started) == ([], [])


def test_one_that_somebody_has_stopped_has_longer(tasks: PlayedTasks) -> None:
    tasks.supervisor.report_lost([WORKER])
    tasks.process(WORKER).is_stopped = True
    tasks.look(0.0, 599.0)
    assert tasks.said == []
    tasks.look(600.0, 600.1)
    [said] = tasks.said
    assert said.startswith("worker 1 was stopped (SIGSTOP) for 10 min 0 s, ended by SIGKILL")


def test_one_that_goes_on_after_a_stop_has_the_whole_time_to_answer(tasks: PlayedTasks) -> None:
    tasks.supervisor.report_lost([WORKER])
    tasks.process(WORKER).is_stopped = True
    tasks.look(0.0, 500.0)
    tasks.process(WORKER).is_stopped = False
    tasks.look(501.0, 560.0)
    assert tasks.said == []
    tasks.look(561.0, 561.1)
    assert "worker 1 did not respond for 60 s" in tasks.said[0]


def test_a_server_that_could_not_be_used_again_is_left_alone(tasks: PlayedTasks) -> None:
    tasks.supervisor.report_lost([SERVER])
    tasks.process(SERVER).is_stopped = True
    tasks.look(0.0, 1_000.0)
    tasks.process(SERVER).is_stopped = False
    tasks.look(2_000.0, 3_000.0)
    assert tasks.said == []
    tasks.supervisor.set_server_restarts(lambda: True)
    tasks.look(3_001.0, 3_061.0, 3_061.1, 3_061.4)
    assert tasks.started == [SERVER]
    assert tasks.said[0].startswith("ps 0 did not respond for 60 s, ended by SIGKILL and is")


def test_a_hang_that_comes_again_spends_the_budget(tmp_path: Path) -> None:
    tasks = PlayedTasks(tmp_path, FaultTolerance(restart_budget=0))
    tasks.supervisor.report_lost([WORKER])
    tasks.look(0.0, 60.0, 60.1)
    assert tasks.said == [
        "worker 1 did not respond for 60 s, ended by SIGKILL and is not started again: the "
        "budget is 0"
    ]
    [died] = [record for record in tasks.events.read() if record.event == "task_died"]
    assert died.reason == "did not respond for 60 s"


def test_a_task_that_was_not_forked_yet_holds_nobody_up(tasks: PlayedTasks) -> None:
    """A request for the number of its process would wait for it."""

    def wait() -> bool:
        raise AssertionError("it has no number yet")

    tasks.process(WORKER).ended = -9
    tasks.look(0.0, 0.3)
    tasks.process(WORKER).is_suspended = wait  # type: ignore[method-assign]
    tasks.look(2.0, 4.0)
    assert len(tasks.said) == 1


def test_nobody_is_killed_where_that_is_not_wanted(tmp_path: Path) -> None:
    tasks = PlayedTasks(tmp_path, FaultTolerance(hang_timeout_s=math.inf))
    tasks.supervisor.report_lost([WORKER])
    tasks.look(0.0, 1e9)
    assert tasks.said == []
