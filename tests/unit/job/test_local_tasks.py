"""What `tfps train` starts its tasks with, and tells of them; no task starts here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tfps
from tfps.cluster.exit_status import TEMPORARY_STATUS, shell_status
from tfps.config import load
from tfps.config.bundle import config_path
from tfps.errors import ClusterError, ConfigError
from tfps.job import local_job, train
from tfps.launch import output
from tfps.launch.chief_watch import ChiefWatch
from tfps.recovery.events import EventLog
from tfps.recovery.restarts.restart_policy import EndJob

SUBSET = "data.source=subset"


class Tasks:
    """Stands for the cluster, and notes what it is made with."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.spec = SimpleNamespace(tasks=lambda *_: [])
        self.recorded: list[tuple[str, int | None]] = []
        self.keeper = SimpleNamespace(
            ended=None,
            record=lambda event, status: self.recorded.append((event, status)),
        )

    def __enter__(self) -> Tasks:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class PlayedChief:
    """Stands for the child, and notes its command."""

    def __init__(self, cluster: Any, command: list[str], **options: Any) -> None:
        self.command, self.options = command, options
        self.is_stopped = False
        self.process = SimpleNamespace(
            pid=7, send=lambda number: None, report=lambda how: f"chief {how}; its last lines: ..."
        )

    def stop(self) -> None:
        self.is_stopped = True


class Started:
    """What was started, and how it will end."""

    def __init__(self) -> None:
        self.tasks: list[Tasks] = []
        self.chiefs: list[PlayedChief] = []
        self.end: Callable[[ChiefWatch], int] = lambda _: 0

    def make_tasks(self, **options: Any) -> Tasks:
        self.tasks.append(Tasks(**options))
        return self.tasks[-1]

    def make_chief(self, *arguments: Any, **options: Any) -> PlayedChief:
        self.chiefs.append(PlayedChief(*arguments, **options))
        return self.chiefs[-1]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    started = Started()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(local_job, "LocalCluster", started.make_tasks)
    monkeypatch.setattr(local_job, "Chief", started.make_chief)
    monkeypatch.setattr(ChiefWatch, "run", lambda watch: started.end(watch))  # noqa: PLW0108
    return started


def test_the_chief_trains_the_same_job(started: Started) -> None:
    overrides = [SUBSET, "restarts.budget=5", "restarts.min_workers=2"]
    assert local_job.run_local_job("fashion_mnist_sync", overrides) == 0
    [tasks], [chief] = started.tasks, started.chiefs
    assert tasks.options["fault_tolerance"] == tfps.FaultTolerance(restart_budget=5, min_workers=2)
    assert (tasks.options["workers"], tasks.options["ps"]) == (3, 1)
    assert chief.command == [
        *(sys.executable, "-P", "-m", "tfps", "train"),
        *("--set", SUBSET, "--set", "restarts.budget=5", "--set", "restarts.min_workers=2"),
        *("--", "fashion_mnist_sync"),
    ]
    assert chief.options == {"is_prefixed": False, "takes_signals": True}
    assert chief.is_stopped


def test_what_becomes_of_tasks_is_shown_and_stands_beside_the_results(started: Started) -> None:
    assert local_job.run_local_job(None, [SUBSET, "training.output=out"]) == 0
    [tasks] = started.tasks
    assert tasks.keeper.events.path == Path("out/events.jsonl")
    assert tasks.options["log_dir"] == Path("out/logs")
    assert tasks.keeper.say is output.say
    assert tasks.recorded == [("job_ended", 0)]


def test_a_chief_that_fails_has_said_why(
    started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    started.end = lambda _: 1
    assert local_job.run_local_job(None, [SUBSET]) == 1
    assert started.tasks[0].recorded == [("job_ended", 1)]
    assert capsys.readouterr() == ("", "")


def test_a_chief_that_is_killed_is_reported(
    started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    started.end = lambda _: -9
    assert local_job.run_local_job(None, [SUBSET]) == 137
    assert started.tasks[0].recorded == [("job_ended", -9)]
    assert capsys.readouterr().err == "tfps: chief ended by SIGKILL; its last lines: ...\n"


def test_a_chief_that_does_not_end_where_the_job_cannot_go_on_is_spoken_for(
    started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(watch: ChiefWatch) -> int:
        watch.cluster.keeper.ended = EndJob("no worker is left")
        watch.is_cut_off = True
        return 1

    started.end = end
    assert local_job.run_local_job(None, [SUBSET]) == 1
    assert started.tasks[0].recorded == [], "the keeper has written it"
    assert capsys.readouterr().err == "tfps: the job cannot go on: no worker is left\n"


def _in_turn(*statuses: int) -> Callable[[ChiefWatch], int]:
    left = list(statuses)
    return lambda _: left.pop(0)


def test_the_next_chief_of_a_job_with_a_name_goes_on(
    started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    started.end = _in_turn(-9, TEMPORARY_STATUS, 0)
    assert local_job.run_local_job(None, [SUBSET, "job.name=night", "job.fresh=true"]) == 0
    first, second, third = started.chiefs
    assert all(chief.is_stopped for chief in started.chiefs)
    assert second.command == third.command
    given = [word for word in second.command if word.startswith("job.")]
    assert given == ["job.name=night", "job.fresh=true", "job.fresh=false"]
    assert second.command[: len(first.command) - 1] == first.command[:-1]
    records = EventLog(Path("runs/fashion_mnist/events.jsonl")).read()
    assert [(record.event, record.status) for record in records] == [
        ("job_started", None),
        ("task_died", -9),
        ("task_restarted", None),
        ("task_died", 75),
        ("task_restarted", None),
    ]
    first_line, second_line = capsys.readouterr().err.splitlines()
    assert "chief ended by SIGKILL and is started again in 250 ms (restart 1 of 3)" in first_line
    assert (
        "chief ended with status 75 and is started again in 500 ms (restart 2 of 3" in second_line
    )


@pytest.mark.parametrize(
    ("overrides", "statuses"),
    [
        pytest.param([], [-9], id="no name"),
        pytest.param(["job.name=night"], [1], id="an error"),
        pytest.param(["job.name=night"], [-15], id="asked for"),
        pytest.param(["job.name=night", "restarts.budget=1"], [-9, -9], id="budget spent"),
    ],
)
def test_other_ends_of_a_chief_end_the_job(
    started: Started, overrides: list[str], statuses: list[int]
) -> None:
    started.end = _in_turn(*statuses)
    status = local_job.run_local_job(None, [SUBSET, *overrides])
    assert status == shell_status(statuses[-1])
    assert len(started.chiefs) == len(statuses)


def test_nobody_goes_on_with_servers_that_are_lost(started: Started) -> None:
    def end(watch: ChiefWatch) -> int:
        watch.cluster.keeper.ended = EndJob("what ps 0 held is lost with it", is_noticed=True)
        return TEMPORARY_STATUS

    started.end = end
    assert local_job.run_local_job(None, [SUBSET, "job.name=night"]) == TEMPORARY_STATUS
    assert len(started.chiefs) == 1


def test_a_task_that_does_not_start_ends_the_chief(started: Started) -> None:
    def end(_: ChiefWatch) -> int:
        raise ClusterError("fork server ended with status 1")

    started.end = end
    with pytest.raises(ClusterError, match="fork server ended"):
        local_job.run_local_job(None, [SUBSET])
    assert started.chiefs[0].is_stopped


def test_a_mistake_starts_and_writes_nothing(started: Started, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.epochs: received 0"):
        local_job.run_local_job(None, [SUBSET, "training.epochs=0"])
    assert started.tasks == []
    assert list(tmp_path.iterdir()) == []


class Strategy:
    """Stands for the one of the job."""

    def __init__(self, *_: Any, **options: Any) -> None:
        self.options, self.is_closed = options, False

    def close(self) -> None:
        self.is_closed = True


def test_the_strategy_knows_how_often_tasks_are_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tfps, "ParameterServerStrategy", Strategy)
    changes = ["restarts.budget=5", "restarts.min_workers=2", "restarts.hang_timeout_s=7.0"]
    config = load(config_path(None), changes)
    with train._strategy(config, resolver=None) as strategy:
        fault_tolerance = tfps.FaultTolerance(restart_budget=5, min_workers=2, hang_timeout_s=7.0)
        assert strategy.options["fault_tolerance"] == fault_tolerance


def test_the_strategy_gets_the_name_and_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfps, "ParameterServerStrategy", Strategy)
    changes = ["job.name=night", "job.fresh=true", "cluster.max_workers=4"]
    config = load(config_path(None), [*changes, "training.batch_callbacks=lock_step"])
    with train._strategy(config, resolver=None) as strategy:
        pass
    job = tfps.Job("night", fresh=True)
    expected = {"job": job, "max_workers": 4, "batch_callbacks": "lock_step"}
    assert expected.items() <= strategy.options.items()
    assert strategy.is_closed


@pytest.mark.parametrize(("name", "closes"), [([], True), (["job.name=night"], False)])
def test_a_job_with_a_name_stays_on_the_servers_where_it_fails(
    name: list[str], closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfps, "ParameterServerStrategy", Strategy)
    with pytest.raises(ValueError, match="wrong"):
        with train._strategy(load(config_path(None), name), resolver=None) as strategy:
            raise ValueError("wrong")
    assert strategy.is_closed is closes
