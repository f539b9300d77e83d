"""The results of test runs on versions, and the places that say them."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tfps import tested_versions
from tfps.tested_versions import (
    Row,
    format_known_range,
    list_known_releases,
    parse_minor,
    read_version_rows,
)

ROOT = Path(__file__).parents[2]
ROW = Row(
    tensorflow="2.18.1",
    keras="3.14.1",
    python="3.12.1",
    tests="smoke",
    passed=True,
    closing="40 passed in 100.00s",
)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The program of `make test-versions`, with a file and a page of its own."""
    spec = importlib.util.spec_from_file_location("runner", ROOT / ".ci/test_versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for owner, name in ((tested_versions, "FILE"), (module, "PAGE")):
        copy = tmp_path / getattr(owner, name).name
        copy.write_text(getattr(owner, name).read_text())
        monkeypatch.setattr(owner, name, copy)
    return module


@pytest.fixture(autouse=True)
def _read_anew() -> Iterator[None]:
    read_version_rows.cache_clear()
    yield
    read_version_rows.cache_clear()


def test_releases_are_one_of_each_minor_version_newest_first() -> None:
    for package in ("tensorflow", "keras"):
        minors = [parse_minor(release) for release in list_known_releases(package)]
        assert minors
        assert minors == sorted(set(minors), reverse=True)


def test_a_row_that_failed_is_not_tested(runner: ModuleType) -> None:
    runner.record(dataclasses.replace(ROW, keras="3.99.0", passed=False, closing="1 failed in 1s"))
    assert "3.99.0" not in list_known_releases("keras")
    assert "| 2.18.1 | 3.99.0 | 3.12.1 | smoke | failed: 1 failed in 1s |" in runner.table()


def test_a_run_is_written_into_the_file_and_the_page(runner: ModuleType) -> None:
    runner.record(dataclasses.replace(ROW, closing="1 passed in 1s"))
    runner.record(ROW)
    assert read_version_rows().count(ROW) == 1
    assert [row.name for row in read_version_rows()].count(ROW.name) == 1
    assert f"| {ROW.closing} |" in runner.PAGE.read_text()
    assert "1 passed in 1s" not in runner.PAGE.read_text()


def test_the_page_has_all_rows(runner: ModuleType) -> None:
    written = runner.PAGE.read_text()
    runner.write_page()
    assert runner.PAGE.read_text() == written


def test_ten_rows_are_tested_in_full(runner: ModuleType) -> None:
    rows = runner.all_rows()
    full = [name for name, tests in rows.items() if tests == "conformance"]
    assert (len(rows), len(full)) == (24, 10)
    assert "2.16.2+3.12.4" in full


def test_the_tests_of_a_row_exist(runner: ModuleType) -> None:
    assert [name for name in runner.CONFORMANCE if not (ROOT / name).exists()] == []


def test_a_rows_constraints_pin_its_versions(runner: ModuleType, tmp_path: Path) -> None:
    for tensorflow in runner.TENSORFLOW:
        lines = runner.constraints(tensorflow, "3.12.4", tmp_path).read_text().splitlines()
        pins = [line for line in lines if line.startswith(("tensorflow==", "keras=="))]
        assert pins == [f"tensorflow=={tensorflow}", "keras==3.12.4"]


def test_pages_and_the_command_line_have_the_known_range() -> None:
    pair = f"TensorFlow {format_known_range('tensorflow')} and Keras {format_known_range('keras')}"
    for page in ("README.md", "docs/reference/limits.md"):
        assert pair in " ".join((ROOT / page).read_text().split()), page
