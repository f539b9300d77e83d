"""The pages of docs/benchmarks: each is what its data says, and what has changed is found."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from benchmarks.pages import FOLDER, Pages
from benchmarks.scaling import Scaling
from tests.messages import raises
from tests.unit.benchmarks.chief_results import BenchWithoutChiefs

BAR = "3 workers + 2 ps: share of 3 times one worker"


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    """A copy of the pages without measurements."""
    shutil.copytree(FOLDER, tmp_path / "docs", ignore=shutil.ignore_patterns("data"))
    return Pages(tmp_path / "docs")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The file that `python -m benchmarks scaling --quick` writes."""
    benchmark = Scaling().quick()
    path = benchmark.write(BenchWithoutChiefs(benchmark, tmp_path).run(), tmp_path)
    path.with_suffix(".png").touch()
    return path


def taken(pages: Pages, run: Path) -> str:
    pages.copy_run(run)
    for path, text in pages.written().items():
        path.write_text(text)
    return (pages.folder / f"{run.stem}.md").read_text()


def test_each_page_is_what_its_data_says() -> None:
    pages = Pages(FOLDER)
    stale = [path.name for path, text in pages.written().items() if path.read_text() != text]
    assert stale == [], "run: python -m benchmarks.pages"
    assert pages.missed_without_reason() == []


def test_a_missed_aim_is_listed_with_its_reason_in_the_place_of_older_ones(
    pages: Pages, run: Path
) -> None:
    page = pages.folder / "aims.md"
    older = "| [many workers](scaling.md) | share of 16 times one worker | 0.95 | 0.9 | old |\n"
    placement = "| [placement](placement.md)"
    page.write_text(page.read_text().replace(placement, older + placement, 1))
    taken(pages, run)
    assert pages.missed_without_reason() == [f"scaling: {BAR}"]
    reasons = {"scaling": {BAR: "chiefs that reply at once"}}
    (pages.folder / "data/reasons.json").write_text(json.dumps(reasons))
    taken(pages, run)
    assert pages.missed_without_reason() == []
    aims = page.read_text()
    assert "[many workers](scaling.md)" not in aims
    assert f"| [scaling](scaling.md) | {BAR} | at least 0.95 | 0.333 | chiefs that reply" in aims
    assert "[placement](placement.md)" in aims


def test_the_numbers_of_before_stand_beside_those_of_now(pages: Pages, run: Path) -> None:
    report = json.loads(run.read_text())
    report["bars"] = [bar | {"value": 0.125} for bar in report["bars"][:1]]
    (pages.folder / "data").mkdir()
    (pages.folder / "data/scaling_before.json").write_text(json.dumps(report))
    text = taken(pages, run)
    assert "| aim | [was](data/scaling_before.json) | is | should be |" in text
    assert "| 0.125 | 0.333 | at least 0.95 |" in text


def test_a_picture_of_another_run_is_refused(pages: Pages, run: Path) -> None:
    os.utime(run.with_suffix(".png"), (0, 0))
    with raises(SystemExit, "older than"):
        pages.copy_run(run)
