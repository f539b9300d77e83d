"""Folders that a command writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.folder import folder_problem, make_folder


def test_a_folder_is_made_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert folder_problem(path, name="--log-dir") is None
    assert list(tmp_path.iterdir()) == []
    assert make_folder(path, name="--log-dir") == path
    assert make_folder(path, name="--log-dir").is_dir()


def test_what_is_below_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    problem = folder_problem(file / "logs", name="--log-dir")
    assert problem == (
        f"--log-dir: received '{file}/logs': {file} is a file, expected a folder to write to"
    )
    with pytest.raises(ConfigError) as raised:
        make_folder(file / "logs", name="--log-dir")
    assert str(raised.value) == problem


def test_what_only_the_system_knows_is_found_by_making_it() -> None:
    """No user, not even root, can make a folder in /proc."""
    with raises(ConfigError, "--log-dir", received="'/proc/nope'", remedy="a folder"):
        make_folder(Path("/proc/nope"), name="--log-dir")
