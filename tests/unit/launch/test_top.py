"""`tfps top` shows a record, whole or a line at a time, and says why it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.observe.records import WORKERS, Line, record
from tfps.cli import main, top
from tfps.observe.record import RECORD_FILE


def _write(folder: Path, lines: list[Line]) -> None:
    texts = [json.dumps(line) for line in lines]
    (folder / RECORD_FILE).write_text("\n".join([*texts, texts[-1][:50]]))


def _top(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(main, ["top", *arguments])


def _slow(second: int, line: Line) -> None:
    line["stats"]["worker_step_seconds"][2] = 0.5
    line["stats"]["tasks"]["worker 1"] = "rejoining"


def test_a_table_has_each_task_and_the_warnings(tmp_path: Path) -> None:
    _write(tmp_path, record(fault=_slow))
    result = _top(str(tmp_path), "--once")
    assert result.exit_code == 0, result.output
    first, *rows = result.output.splitlines()
    assert first.endswith(" - 15.0 steps/s - loss 0.02222 - worker 1 is rejoining")
    found = {row[:8].strip(): " ".join(row[8:].split()) for row in rows if "%" in row}
    assert found["worker 2"] == "alive 445 5.0 500 ms 100% 1.0 GB"
    assert found["ps 1"] == "1,335 15.0 600.0 MB/s 10 ms 100% 1.0 GB"
    assert any(row.startswith("worker 2 is slow, 500 ms per step") for row in rows)


def test_json_has_the_numbers_of_the_record(tmp_path: Path) -> None:
    lines = record()
    _write(tmp_path, lines)
    view: dict[str, Any] = json.loads(_top(str(tmp_path), "--once", "--json").output)
    tasks = {each["task"]: each for each in view["tasks"]}
    stats = lines[-1]["stats"]
    for worker in range(WORKERS):
        assert tasks[f"worker {worker}"]["count"] == stats["worker_steps"][worker]
        assert tasks[f"worker {worker}"]["per_s"] == pytest.approx(5.0)
    assert tasks["ps 0"]["count"] == stats["servers"][0]["updates_applied"]
    assert tasks["ps 0"]["took_s"] == pytest.approx(0.01)
    assert view["warnings"] == []


def test_without_a_terminal_it_writes_a_line_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(seconds: float) -> None:
        assert seconds == top.PERIOD_S
        raise KeyboardInterrupt

    monkeypatch.setattr("tfps.cli.top.time.sleep", stop)
    _write(tmp_path, record(3, fault=_slow))
    (line,) = [each for each in _top(str(tmp_path)).output.splitlines() if "steps/s" in each]
    assert line.endswith(" - 15.0 steps/s - loss 0.6667 - worker 1 is rejoining")


def _of_a_newer_version(folder: Path) -> None:
    _write(folder, [line | {"version": 2} for line in record(2)])


def _empty(folder: Path) -> None:
    (folder / RECORD_FILE).touch()


def _without_statistics(second: int, line: Line) -> None:
    line["stats"] = {"tasks": {"ps 0": "lost"}}


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: None, "cannot be read (No such file or directory); expected the folder"),
        (_empty, "has no line yet; wait"),
        (_of_a_newer_version, "received a record of version 2, expected at most 1; read"),
    ],
    ids=["no record", "empty", "newer"],
)
def test_what_is_no_record_is_refused_in_a_line(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    prepare(tmp_path)
    result = _top(str(tmp_path), "--once")
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert message in line


def test_a_lost_server_is_named(tmp_path: Path) -> None:
    _write(tmp_path, record(2, fault=_without_statistics))
    assert "ps 0 is lost" in _top(str(tmp_path), "--once").output


@pytest.mark.parametrize("arguments", [(), ("runs", "--job", "night")], ids=["neither", "both"])
def test_one_of_run_and_job_is_given(arguments: tuple[str, ...]) -> None:
    result = _top(*arguments)
    assert result.exit_code == 2
    assert "received RUN and --job, or neither; give one of them." in result.output


def test_a_job_without_addresses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    result = _top("--job", "night", "--once")
    assert result.exit_code == 1
    assert "tfps.attach: addresses: not set; set it to" in result.output
