"""The arguments of the tasks of `tfps train`, and its messages; no task starts here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import tfps
from tests.messages import raises
from tfps.config import load
from tfps.config.bundle import config_path
from tfps.errors import ConfigError
from tfps.job import train
from tfps.launch.launcher import ChiefProgram

SUBSET = "data.source=subset"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[ChiefProgram, Any]]:
    """The calls of the launcher, which returns status 3."""
    launched: list[tuple[ChiefProgram, Any]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)

    def launch(program: ChiefProgram, **given: Any) -> int:
        launched.append((program, given))
        return 3

    monkeypatch.setattr(train, "launch", launch)
    return launched


def test_the_chief_trains_the_same_job(launched: list[tuple[ChiefProgram, Any]]) -> None:
    overrides = [SUBSET, "restarts.budget=5", "restarts.min_workers=2", "training.output=out"]
    assert train.train("fashion_mnist_sync", overrides) == 3
    [(program, given)] = launched
    assert given == {
        "workers": 3,
        "ps": 1,
        "fault_tolerance": tfps.FaultTolerance(
            checkpoints=Path("out/checkpoints"), restart_budget=5, min_workers=2
        ),
        "log_dir": Path("out/logs"),
        "events": Path("out/events.jsonl"),
    }
    changes = [part for each in overrides for part in ("--set", each)]
    assert program.command == ["train", *changes, "--", "fashion_mnist_sync"]
    assert program.next_command is None


def test_the_next_chief_of_a_job_with_a_name_goes_on(
    launched: list[tuple[ChiefProgram, Any]],
) -> None:
    train.train(None, [SUBSET, "job.name=night", "job.fresh=true"])
    [(program, _)] = launched
    *same, separator = program.command
    assert program.next_command == [*same, "--set", "job.fresh=false", separator]


def test_a_mistake_starts_and_writes_nothing(
    launched: list[tuple[ChiefProgram, Any]], tmp_path: Path
) -> None:
    with raises(ConfigError, "training.epochs", received=0, remedy="a whole number"):
        train.train(None, [SUBSET, "training.epochs=0"])
    assert launched == []
    assert list(tmp_path.iterdir()) == []


class Strategy:
    """A stand-in for the strategy of the job."""

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
    with train.strategy_of_job(config, resolver=None) as strategy:
        fault_tolerance = tfps.FaultTolerance(
            checkpoints=Path("runs/fashion_mnist/checkpoints"),
            restart_budget=5,
            min_workers=2,
            hang_timeout_s=7.0,
        )
        assert strategy.options["fault_tolerance"] == fault_tolerance


def test_the_strategy_gets_the_name_and_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfps, "ParameterServerStrategy", Strategy)
    changes = ["job.name=night", "job.fresh=true", "cluster.max_workers=4"]
    config = load(config_path(None), [*changes, "training.batch_callbacks=lock_step"])
    with train.strategy_of_job(config, resolver=None) as strategy:
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
        with train.strategy_of_job(load(config_path(None), name), resolver=None) as strategy:
            raise ValueError("wrong")
    assert strategy.is_closed is closes


@pytest.mark.parametrize("task_type", ["worker", "ps"])
def test_a_task_accepts_workers_on_the_port_of_the_job_file(
    monkeypatch: pytest.MonkeyPatch, task_type: str
) -> None:
    addresses = {t: [f"localhost:{n}"] for n, t in enumerate(("chief", "worker", "ps"), 1)}
    task = {"cluster": addresses, "task": {"type": task_type, "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    monkeypatch.setenv("TFPS_DATA_PORT", "")
    monkeypatch.delenv("TFPS_DATA_PORT")
    monkeypatch.setattr(train, "run_task", lambda *_, **__: int(os.environ["TFPS_DATA_PORT"]))
    assert train.train("fashion_mnist_sync", [SUBSET, "transport.data_port=7000"]) == 7000
    monkeypatch.setenv("TFPS_DATA_PORT", "7001")
    assert train.train("fashion_mnist_sync", [SUBSET, "transport.data_port=7000"]) == 7001
