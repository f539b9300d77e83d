"""Tests how the same command goes on with an unfinished run, and replaces a finished one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.messages import check_message
from tfps.config import JobConfig, parse
from tfps.job.unfinished_run import begin_run, end_run, run_problems

CHECKPOINT = Path("runs/fashion_mnist/checkpoints/checkpoint-000001")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(**values: Any) -> JobConfig:
    return parse(values)


def start(how: str) -> dict[str, Any]:
    return {"recovery": {"start": how}}


def stop_after_a_checkpoint(config: JobConfig) -> None:
    begin_run(config)
    CHECKPOINT.mkdir()


def test_a_run_begins_goes_on_and_ends() -> None:
    assert not begin_run(job())
    assert not begin_run(job())  # which has saved nothing
    CHECKPOINT.mkdir()
    further = job(training={"epochs": 99}, cluster={"workers": 3}, recovery={"every_s": 5})
    assert run_problems(further) == []
    assert begin_run(further)
    assert CHECKPOINT.exists()
    end_run(further)
    assert "epochs = 99" in Path("runs/fashion_mnist/config.toml").read_text()
    assert CHECKPOINT.exists()
    assert not begin_run(job())  # the finished run is replaced
    assert not CHECKPOINT.exists()


def test_another_configuration_is_refused_by_its_keys() -> None:
    stop_after_a_checkpoint(job())
    other = {"training": {"seed": 7}, "data": {"batch_size": 32}}
    batch_size, seed = run_problems(job(**other))
    check_message(batch_size, "data.batch_size", received="32", remedy="--overwrite")
    check_message(seed, "training.seed", received="7", remedy="training.output")
    assert run_problems(job(**other, **start("overwrite"))) == []
    assert not begin_run(job(**other, **start("overwrite")))
    assert not CHECKPOINT.exists()


def test_resume_must_find_a_run() -> None:
    (problem,) = run_problems(job(**start("resume")))
    check_message(problem, "recovery.start", received="'resume'", remedy="--resume")
    stop_after_a_checkpoint(job())
    assert run_problems(job(**start("resume"))) == []
    assert begin_run(job(**start("resume")))
    assert 'start = "auto"' in (CHECKPOINT.parent / "config.toml").read_text()


@pytest.mark.parametrize("values", [{"recovery": {"every_s": 0}}, {"job": {"name": "night"}}])
def test_jobs_that_save_nothing_here(values: dict[str, Any]) -> None:
    stop_after_a_checkpoint(job())
    assert run_problems(job(**values)) == []
    assert not begin_run(job(**values))
    assert CHECKPOINT.exists()
    end_run(job(**values))
    assert Path("runs/fashion_mnist/config.toml").exists()
