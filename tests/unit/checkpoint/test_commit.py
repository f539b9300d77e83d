"""A crash after any operation on files leaves all committed checkpoints whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.messages import raises
from tfps.checkpoint.commit import Folder
from tfps.checkpoint.manifest import Manifest
from tfps.errors import CheckpointError, ConfigError

OPERATIONS = ("mkdir", "open", "fsync", "rename", "unlink", "rmdir")
CONTENT = "values of {}"


class Crash(BaseException):
    """The process is gone: no code cleans up behind it."""


@contextmanager
def crash_after(operations: int) -> Iterator[list[str]]:
    """Count operations on files, and raise before the one after `operations` of them."""
    done: list[str] = []

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= operations:
                raise Crash
            done.append(name)
            return original(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield done


def _save(folder: Folder, number: int) -> None:
    temporary = folder.begin(number)
    for name in ("ps-0.index", "ps-0.data-00000-of-00001"):
        (temporary / name).write_text(CONTENT.format(number))
    folder.commit(temporary, Manifest(number=number, saved_at_s=float(number)))


def _job(folder: Folder) -> None:
    """Do what a manager does to save the third of three checkpoints and delete the first."""
    folder.clean()
    _save(folder, 3)
    folder.delete(1)


def _check_whole(folder: Folder) -> list[int]:
    for number in folder.numbers():
        manifest = folder.manifest(number)
        assert (manifest.number, manifest.saved_at_s) == (number, float(number))
        folder.verify(manifest)
        files = [
            path for path in folder.checkpoint_path(number).iterdir() if path.suffix != ".json"
        ]
        assert len(files) == 2
        assert all(path.read_text() == CONTENT.format(number) for path in files)
    return folder.numbers()


def _prepared(path: Path) -> Folder:
    folder = Folder(path)
    _save(folder, 1)
    _save(folder, 2)
    folder.begin(3)  # another one that crashed here
    return folder


def test_a_crash_after_every_operation(tmp_path: Path) -> None:
    with crash_after(10**6) as all_operations:
        _job(_prepared(tmp_path / "counted"))
    with crash_after(10**6) as preparing:
        _prepared(tmp_path / "prepared")
    count = len(all_operations) - len(preparing)
    assert {"rename", "fsync", "rmdir"} <= set(all_operations)
    assert count > 15
    outcomes = []
    for operations in range(count + 1):
        folder = _prepared(tmp_path / str(operations))
        try:
            with crash_after(operations):
                _job(folder)
        except Crash:
            assert operations < count
        else:
            assert operations == count
        outcomes.append(tuple(_check_whole(folder)))
        # The next process goes on, and what is left of this one goes.
        again = Folder(folder.path)
        again.clean()
        assert _check_whole(again) == list(outcomes[-1])
        if 3 in again.numbers():
            again.delete(3)
        _save(again, 3)
        assert 3 in _check_whole(again)
        assert all(entry.name.startswith("checkpoint-") for entry in again.path.iterdir())
    # The new one is there before an old one goes, and never less than before.
    assert sorted(set(outcomes), key=outcomes.index) == [(1, 2), (1, 2, 3), (2, 3)]


def test_nothing_there(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new")
    assert folder.numbers() == []
    assert folder.clean() == []
    assert not folder.path.exists()
    with raises(CheckpointError, str(folder.path), received="checkpoint 3", remedy="none"):
        folder.manifest(3)


def test_numbers_are_not_sorted_as_text(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for number in (10**6, 9, 10):
        _save(folder, number)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "notes.txt").touch()
    assert folder.numbers() == [9, 10, 10**6]
    with raises(CheckpointError, str(tmp_path), received=11, remedy="9, 10, 1000000"):
        folder.manifest(11)


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    _save(folder, 1)
    (folder.checkpoint_path(1) / "manifest.json").write_text("{")
    with raises(CheckpointError, "checkpoint-000001: ", received="damaged"):
        folder.manifest(1)


def test_only_leftovers_are_cleaned(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    _save(folder, 1)
    folder.begin(2)
    (tmp_path / "writing-probe-12").touch()
    (tmp_path / "mine").mkdir()
    assert len(folder.clean()) == 2
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint-000001", "mine"]


@pytest.mark.parametrize("path", [3, "", "gs://bucket/checkpoints"])
def test_refused(path: Any) -> None:
    with raises(ConfigError, "directory", received=repr(path), remedy="folder"):
        Folder(path)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises(ConfigError, "directory", received="file", remedy="folder"):
        Folder(tmp_path / "file")
