"""The launcher follows the ends of a chief, and tells of them; no task starts here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.messages import raises
from tfps.cluster.exit_status import TEMPORARY_STATUS, shell_status
from tfps.errors import ClusterError
from tfps.launch import launcher
from tfps.launch.chief_watch import ChiefWatch
from tfps.launch.launcher import ChiefProgram, launch
from tfps.recovery.events import EventLog, EventRecord
from tfps.recovery.fault_tolerance import FaultTolerance
from tfps.recovery.restarts.restart_policy import EndJob

SCRIPT = ChiefProgram(command=["run", "train.py"], name="train.py")
JOB = ChiefProgram(command=["train"], name="the job", reports_failures=True)
NAMED = ChiefProgram(
    command=["train"], name="the job", next_command=["again"], reports_failures=True
)


class Tasks:
    """Stands for the cluster, and notes its options."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.spec = SimpleNamespace(tasks=lambda *_: [])
        self.logs: dict[str, Path] = {}
        self.supervisor = SimpleNamespace(
            ended=None, restarts=[], events=EventLog(options["log_dir"] / "events.jsonl")
        )
        self.supervisor.record = lambda event, status: self.supervisor.events.write(
            EventRecord(event=event, status=status)
        )

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def failures(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class PlayedChief:
    """Stands for the child, and notes its command."""

    def __init__(self, _: Tasks, command: list[str], *, is_prefixed: bool) -> None:
        self.command, self.is_prefixed = command, is_prefixed
        self.is_stopped = False
        self.process = SimpleNamespace(
            pid=7, send=lambda number: None, report=lambda how: f"chief {how}; its last lines: ..."
        )

    def stop(self) -> None:
        self.is_stopped = True


class StartedTasks:
    """Everything that was started, and how it will end."""

    def __init__(self, folder: Path) -> None:
        self.log_dir = folder / "logs"
        self.tasks: list[Tasks] = []
        self.chiefs: list[PlayedChief] = []
        self.end: Callable[[], int] = lambda: 0

    def ends(self, *statuses: int) -> None:
        left = list(statuses)
        self.end = lambda: left.pop(0)

    def launch(self, program: ChiefProgram, **options: Any) -> int:
        return launch(program, workers=2, ps=1, log_dir=self.log_dir, **options)

    def records(self) -> list[tuple[str, int | None]]:
        found = EventLog(self.log_dir / "events.jsonl").read()
        return [(record.event, record.status) for record in found]

    def make_tasks(self, **options: Any) -> Tasks:
        self.tasks.append(Tasks(**options))
        return self.tasks[-1]

    def make_chief(self, *arguments: Any, **options: Any) -> PlayedChief:
        self.chiefs.append(PlayedChief(*arguments, **options))
        return self.chiefs[-1]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StartedTasks:
    started = StartedTasks(tmp_path)
    monkeypatch.setattr(launcher, "LocalCluster", started.make_tasks)
    monkeypatch.setattr(launcher, "Chief", started.make_chief)
    monkeypatch.setattr(ChiefWatch, "run", lambda *_: started.end())
    return started


def test_the_tasks_and_their_chief_are_those_asked_for(
    started: StartedTasks, tmp_path: Path
) -> None:
    fault_tolerance = FaultTolerance(restart_budget=5)
    assert (
        started.launch(JOB, fault_tolerance=fault_tolerance, events=tmp_path / "events.jsonl") == 0
    )
    [tasks], [chief] = started.tasks, started.chiefs
    expected = {
        "workers": 2,
        "ps": 1,
        "log_dir": started.log_dir,
        "fault_tolerance": fault_tolerance,
    }
    assert expected.items() <= tasks.options.items()
    assert (chief.command, chief.is_prefixed, chief.is_stopped) == (["train"], False, True)
    [_, last] = EventLog(tmp_path / "events.jsonl").read()
    assert (last.event, last.status) == ("job_ended", 0)


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        (JOB, 0, ""),
        (JOB, 1, ""),
        (JOB, -9, "tfps: chief ended by SIGKILL; its last lines: ...\n"),
        (SCRIPT, 0, "tfps: starting 2 workers and 1 parameter server; logs in {logs}\n"),
        (
            SCRIPT,
            -9,
            "tfps: starting 2 workers and 1 parameter server; logs in {logs}\n"
            "tfps: chief ended by SIGKILL; its last lines: ...\n"
            "tfps: train.py ended by SIGKILL; logs in {logs}\n",
        ),
    ],
)
def test_the_end_is_told_once(
    started: StartedTasks,
    program: ChiefProgram,
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started.ends(status)
    assert started.launch(program) == shell_status(status)
    assert started.chiefs[0].is_prefixed is (program is SCRIPT)
    assert capsys.readouterr() == ("", said.format(logs=started.log_dir))
    assert started.records() == [("job_started", None), ("job_ended", status)]


def test_what_the_keeper_has_ended_is_recorded_by_it(started: StartedTasks) -> None:
    def end() -> int:
        started.tasks[0].supervisor.ended = EndJob("no worker is left")
        return 1

    started.end = end
    assert started.launch(JOB) == 1
    assert started.records() == []


def test_the_next_chief_goes_on(started: StartedTasks, capsys: pytest.CaptureFixture[str]) -> None:
    started.ends(-9, TEMPORARY_STATUS, 0)
    assert started.launch(NAMED) == 0
    assert [chief.command for chief in started.chiefs] == [["train"], ["again"], ["again"]]
    assert all(chief.is_stopped for chief in started.chiefs)
    assert started.records() == [
        ("job_started", None),
        ("task_died", -9),
        ("task_restarted", None),
        ("task_died", 75),
        ("task_restarted", None),
        ("job_ended", 0),
    ]
    first, second = capsys.readouterr().err.splitlines()
    assert "chief ended by SIGKILL and is started again in 250 ms (restart 1 of 3)" in first
    assert "chief ended with status 75 and is started again in 500 ms (restart 2 of 3" in second


@pytest.mark.parametrize(
    ("program", "statuses"),
    [
        pytest.param(JOB, [-9], id="no other command"),
        pytest.param(NAMED, [1], id="an error"),
        pytest.param(NAMED, [-15], id="asked for"),
        pytest.param(NAMED, [-9, -9], id="budget spent"),
    ],
)
def test_other_ends_of_a_chief_end_the_job(
    started: StartedTasks, program: ChiefProgram, statuses: list[int]
) -> None:
    started.ends(*statuses)
    assert started.launch(
        program, fault_tolerance=FaultTolerance(restart_budget=1)
    ) == shell_status(statuses[-1])
    assert len(started.chiefs) == len(statuses)


def test_no_chief_goes_on_with_servers_that_are_lost(started: StartedTasks) -> None:
    def end() -> int:
        started.tasks[0].supervisor.ended = EndJob(
            "what ps 0 held is lost with it", is_noticed=True
        )
        return TEMPORARY_STATUS

    started.end = end
    assert started.launch(NAMED) == TEMPORARY_STATUS
    assert len(started.chiefs) == 1


def test_a_task_that_does_not_start_ends_the_chief(started: StartedTasks) -> None:
    def end() -> int:
        raise ClusterError("fork server ended with status 1")

    started.end = end
    with raises(ClusterError, "fork server"):
        started.launch(JOB)
    assert started.chiefs[0].is_stopped
