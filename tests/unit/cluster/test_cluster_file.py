"""`TFPS_CLUSTER_FILE`: where the tasks are now, for a chief whose environment cannot change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.messages import raises
from tfps.cluster import read_cluster_file
from tfps.cluster.cluster_file import CLUSTER_FILE
from tfps.errors import ConfigError
from tfps.strategy.environment import environment_errors

JOBS = {"chief": ["c:1"], "worker": ["w:1"]}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cluster.json"
    monkeypatch.setenv(CLUSTER_FILE, str(path))
    return path


def test_it_is_read_again_each_time(file: Path) -> None:
    for address in ("p:1", "q:1"):
        file.write_text(json.dumps({"cluster": {**JOBS, "ps": [address, "p:2"]}}))
        cluster = read_cluster_file()
        assert cluster is not None
        assert cluster.jobs["ps"] == (address, "p:2")
    assert environment_errors() == []


def test_without_one_somebody_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLUSTER_FILE, raising=False)
    assert read_cluster_file() is None


def test_a_mistake_is_said_before_anything_starts(file: Path) -> None:
    for content, received, remedy in (
        (None, f"{file}: No such file", "Write the cluster to this file"),
        (b"\xff\xfe", f"{file}: it is not UTF-8", "Write the cluster to this file"),
        (b"{", "JSON", '{"cluster": {...}'),
        (b'{"cluster": {"chief": ["c:1"], "worker": ["w:1"]}}', "cluster.ps: missing", "at least"),
    ):
        if content is not None:
            file.write_bytes(content)
        with raises(ConfigError, CLUSTER_FILE, received=received, remedy=remedy) as caught:
            read_cluster_file()
        assert [str(error) for error in environment_errors()] == [str(caught.value)]
