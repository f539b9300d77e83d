"""The logs that stay: the user's, and those of what did not end well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tfps.cluster import ClusterSpec
from tfps.errors import ConfigError
from tfps.launch import LocalCluster
from tfps.launch.environment import LOG_FILE
from tfps.launch.log_folder import LogFolder, TaskLog

JOBS = {"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)}


def _cluster(path: Path) -> LocalCluster:
    return LocalCluster(log_dir=path)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(LOG_FILE, raising=False)
    return tmp_path


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_temporary_folder_goes_after_a_success(temporary: Path, succeeded: bool) -> None:
    folder = LogFolder(None, prefix="tfps-run-")
    assert str(folder) == f"logs (kept on failure) in {folder.path}"
    (folder.path / "worker-0.log").write_text("line\n")
    folder.end(succeeded=succeeded)
    assert folder.path.exists() == (not succeeded)


def test_a_failure_without_a_log_leaves_no_folder(temporary: Path) -> None:
    LogFolder(None, prefix="tfps-run-").end(succeeded=False)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("make", [lambda path: LogFolder(path, prefix="x"), _cluster])
def test_a_folder_that_cannot_be_is_one_error(temporary: Path, make: Callable[[Path], Any]) -> None:
    (temporary / "file").touch()
    with pytest.raises(ConfigError) as raised:
        make(temporary / "file" / "logs")
    assert str(raised.value) == (
        f"log_dir: received '{temporary}/file/logs': {temporary}/file is a file, expected a folder "
        "to write to"
    )


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_folder_of_the_users_stays(temporary: Path, succeeded: bool) -> None:
    folder = LogFolder(temporary / "mine" / "logs", prefix="tfps-run-")
    folder.end(succeeded=succeeded)
    assert folder.path.is_dir()
    assert str(folder) == f"logs in {temporary / 'mine' / 'logs'}"


@pytest.mark.parametrize("status", [0, 1])
def test_the_log_of_a_task(
    temporary: Path, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    log = TaskLog(ClusterSpec(jobs=JOBS, task_type="ps", task_index=0))
    assert log.path.name == "ps-0.log"
    log.path.write_text("line\n")
    said = capsys.readouterr().err
    assert said == f"tfps: ps 0: logs (kept on failure) in {log.path.parent}\n"
    log.end(status)
    assert log.path.exists() == (status != 0)


def test_whoever_started_a_task_may_name_its_log(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(LOG_FILE, str(temporary / "chief-0.log"))
    log = TaskLog(ClusterSpec(jobs=JOBS, task_type="chief", task_index=0))
    assert log.path == temporary / "chief-0.log"
    log.end(0)
    assert temporary.exists()
    assert capsys.readouterr().err == ""
