"""A chief that has lost a task ends with 75 where another start would go on from something."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tfps.cluster import SUPERVISED, ClusterSpec
from tfps.cluster.exit_status import TEMPORARY_STATUS, is_worth_another_try
from tfps.errors import ClusterError
from tfps.launch import run as launch_run
from tfps.launch.another_start import AnotherStart, decide_another_start
from tfps.strategy import named_job

LOST = tf.errors.UnavailableError(None, None, "The parameter server ps 0 is lost")
OTHER = ValueError("wrong")


@pytest.fixture(autouse=True)
def _nothing_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr("tfps.checkpoint.next_start.SEARCHED_CHECKPOINTS", set())
    monkeypatch.setattr(named_job, "OPEN_JOBS", {})


def _model() -> Any:
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])


def test_a_script_that_looks_for_checkpoints_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = tfps.CheckpointManager(_model(), tmp_path)
    manager.save(background=False)
    assert decide_another_start(LOST) is None, "the next start would not look there either"
    manager.restore_latest()
    assert decide_another_start(LOST) is AnotherStart.CHECKPOINT
    assert f"resume from {tmp_path / 'checkpoint-000001'}" in capsys.readouterr().err
    assert decide_another_start(OTHER) is None, "a mistake would come again"


def test_nothing_was_saved_yet(tmp_path: Path) -> None:
    tfps.CheckpointManager(_model(), tmp_path).restore_latest()
    assert decide_another_start(LOST) is None


def test_a_named_job_is_on_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(closed=False)
    monkeypatch.setattr(named_job, "OPEN_JOBS", {("night", "p:1"): runtime})
    assert decide_another_start(LOST) is AnotherStart.JOB
    assert decide_another_start(OTHER) is None
    assert decide_another_start(LOST, has_servers=False) is None
    in_short = ClusterError("the job cannot go on")
    in_short.__cause__ = LOST
    assert decide_another_start(in_short) is AnotherStart.JOB
    runtime.closed = True
    assert decide_another_start(LOST) is None


@pytest.mark.parametrize(
    ("found", "status", "expected"),
    [
        (AnotherStart.CHECKPOINT, TEMPORARY_STATUS, [TEMPORARY_STATUS]),
        (AnotherStart.JOB, TEMPORARY_STATUS, []),  # which ends with the servers
        (None, 1, [1]),
    ],
)
def test_the_other_tasks_start_again_unless_they_hold_the_job(
    found: AnotherStart | None,
    status: int,
    expected: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(_: Any, *, status_of_error: Callable[[BaseException], int], **__: Any) -> int:
        return status_of_error(LOST)

    at_exit: list[Any] = []
    reported: list[int] = []
    for name in ("share_terminal", "install_noise_filter", "end_on_signals", "prepare_process"):
        monkeypatch.setattr(launch_run, name, lambda *_, **__: None)
    monkeypatch.setattr(launch_run, "exit_status_of", run)
    monkeypatch.setattr("atexit.register", at_exit.append)
    monkeypatch.setattr(launch_run, "announce_finished", lambda _, status: reported.append(status))
    monkeypatch.setattr(launch_run, "decide_another_start", lambda _, **__: found)
    monkeypatch.setenv(SUPERVISED, "")
    spec = ClusterSpec(
        jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)},
        task_type="chief",
        task_index=0,
    )
    ended = launch_run.run_task(spec, lambda: None, log_dir=str(tmp_path))
    assert ended == status
    assert is_worth_another_try(ended) is (found is not None)
    for end in reversed(at_exit):
        end()
    assert reported == expected
