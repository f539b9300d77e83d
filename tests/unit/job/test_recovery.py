"""`[recovery]` of a job file: what it asks for, what it excludes, and that the strategy gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tfps
from tests.messages import check_message
from tfps.config import parse
from tfps.errors import ConfigError
from tfps.job.check import check_start
from tfps.job.fault_tolerance import fault_tolerance_of, recovery_problems
from tfps.job.train import strategy_of_job

SUBSET = "data.source=subset"


@pytest.mark.parametrize(
    "values",
    [
        {"recovery": {"every_s": 0}},
        {"job": {"name": "night"}},
        {"placement": {"policy": "all_reduce"}, "consistency": {"mode": "synchronous"}},
    ],
    ids=["never", "named", "all-reduce"],
)
def test_jobs_that_lost_servers_end(values: dict[str, Any]) -> None:
    assert fault_tolerance_of(parse(values)) == tfps.FaultTolerance()


@pytest.mark.parametrize(
    ("values", "folder"),
    [({}, "runs/fashion_mnist/checkpoints"), ({"checkpoints": "saved"}, "saved")],
)
def test_the_folder_is_that_of_the_job_unless_it_is_named(
    values: dict[str, Any], folder: str
) -> None:
    assert fault_tolerance_of(parse({"recovery": values})) == tfps.FaultTolerance(
        checkpoints=Path(folder)
    )
    named = {"recovery": {**values, "every_steps": 7}, "job": {"name": "night"}}
    assert fault_tolerance_of(parse(named)) == tfps.FaultTolerance(
        checkpoints=Path(folder), every_steps=7
    )


def test_the_strategy_gets_it() -> None:
    config = parse({"recovery": {"every_steps": 7, "on_lost_server": "stop"}})
    with mock.patch("tfps.ParameterServerStrategy") as strategy, strategy_of_job(config, None):
        pass
    assert strategy.call_args.kwargs["fault_tolerance"] == tfps.FaultTolerance(
        checkpoints=Path("runs/fashion_mnist/checkpoints"), on_lost_server="stop"
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"recovery": {"every_s": 0, "checkpoints": "saved", "on_lost_server": "stop"}},
            [("recovery.checkpoints", "'saved'"), ("recovery.on_lost_server", "'stop'")],
        ),
        ({"recovery": {"on_lost_server": "stop"}}, []),
    ],
)
def test_what_does_not_go_together_is_named(
    values: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    problems = recovery_problems(parse(values))
    for problem, (key, received) in zip(problems, expected, strict=True):
        check_message(problem, key, received=received, remedy="set recovery.every_steps")


def test_a_check_finds_every_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    wrong = ["recovery.every_steps=0", "recovery.on_lost_server=go"]
    with pytest.raises(ConfigError) as raised:
        check_start(None, [SUBSET, *wrong])
    steps, policy = raised.value.problems
    check_message(steps, "recovery.every_steps", received=0, remedy="a whole number")
    check_message(policy, "recovery.on_lost_server", received="'go'", remedy="wait, stop")
    together = ["recovery.every_steps=7", "recovery.checkpoints=file"]
    with pytest.raises(ConfigError) as raised:
        check_start(None, [SUBSET, *together])
    (folder,) = raised.value.problems
    check_message(folder, "recovery.checkpoints", received="'file'", remedy="folder")
