"""A record is written each second, and never ends what it records."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.observe import recorder
from tfps.observe.record import RECORD_FILE, format_line, parse_line
from tfps.observe.recorder import RECORD, Recorder, find_record_folder

DEADLINE_S = 20.0
NOTHING: dict[str, object] = {"stats": {}, "usage": {}}


def _fields(folder: Path) -> list[dict[str, object]]:
    lines = (folder / RECORD_FILE).read_text().splitlines()
    return [fields for line in lines if (fields := parse_line(line))]


def test_lines_follow_each_other_and_the_last_is_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "PERIOD_S", 0.01)
    count, enough = 0, threading.Event()

    def read() -> dict[str, object]:
        nonlocal count
        count += 1
        if count == 5:
            enough.set()
        return {"count": count, **NOTHING}

    writer = Recorder(tmp_path / "new/folder", read=read)
    writer.start()
    assert enough.wait(DEADLINE_S)
    writer.close()
    writer.close()
    assert [line["count"] for line in _fields(tmp_path / "new/folder")] == [*range(1, count + 1)]


def test_the_end_of_what_is_recorded_ends_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "PERIOD_S", 0.01)
    ended = threading.Event()

    def read() -> None:
        ended.set()

    writer = Recorder(tmp_path, read=read)
    writer.start()
    assert ended.wait(DEADLINE_S)
    writer.close()
    assert not (tmp_path / RECORD_FILE).exists()


def test_a_failure_is_told_once_and_the_record_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "PERIOD_S", 0.01)
    folder, count, enough = tmp_path / "run", 0, threading.Event()
    folder.write_text("a file")

    def read() -> dict[str, object]:
        nonlocal count
        count += 1
        if count == 3:
            folder.unlink()
            enough.set()
        return {"count": count, **NOTHING}

    writer = Recorder(folder, read=read)
    with caplog.at_level(logging.WARNING, "tfps"):
        writer.start()
        assert enough.wait(DEADLINE_S)
        writer.close()
    assert _fields(folder)[0]["count"] == 3
    (message,) = caplog.messages
    assert f"the record {folder / RECORD_FILE} has gaps" in message


def test_each_kind_of_warning_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "PERIOD_S", 0.01)
    used = {"memory_bytes": 95, "memory_limit_bytes": 100}
    count, enough = 0, threading.Event()

    def read() -> dict[str, object]:
        nonlocal count
        count += 1
        if count == 5:
            enough.set()
        return {"stats": {}, "usage": {"ps 0": used, "ps 1": used}}

    writer = Recorder(tmp_path, read=read)
    with caplog.at_level(logging.WARNING, "tfps"):
        writer.start()
        assert enough.wait(DEADLINE_S)
        writer.close()
    (message,) = caplog.messages
    assert message.startswith("ps 0 uses 95% of the 100 B that it can have: add servers")


def test_old_lines_become_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "THIN_PERIOD_S", 0.0)
    old = [format_line({"count": count}, now_s=1.0 + count, began_s=0.0) for count in range(5)]
    (tmp_path / RECORD_FILE).write_text("\n".join(old) + "\n")
    writer = Recorder(tmp_path, read=lambda: {"count": 9, **NOTHING})
    writer.start()
    writer.close()
    assert [line["count"] for line in _fields(tmp_path)] == [0, 9]
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_FILE]


def test_the_folder_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RECORD, raising=False)
    assert find_record_folder() is None
    monkeypatch.setenv(RECORD, str(tmp_path / "runs/a"))
    assert find_record_folder() == tmp_path / "runs/a"
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv(RECORD, str(file))
    with raises(
        ConfigError, f"TFPS_RECORD: received '{file}': {file} is a file, expected a folder"
    ):
        find_record_folder()
