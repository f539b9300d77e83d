"""The pages of docs/benchmarks: each is what its data says, and data can be put on it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pages as module
from benchmarks.__main__ import BENCHMARKS
from benchmarks.benchmark import Benchmark
from tests.unit.benchmarks.answers import ANSWERS, run_answered

FOLDER = Path(__file__).resolve().parents[3] / "docs/benchmarks"
WITH_CHIEFS = [kind for kind in BENCHMARKS if kind.name in ANSWERS]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return vars(module)


@pytest.fixture
def pages(script: Mapping[str, Any], tmp_path: Path) -> Any:
    """A copy without what has been measured."""
    shutil.copytree(FOLDER, tmp_path / "docs", ignore=shutil.ignore_patterns("data"))
    return script["Pages"](tmp_path / "docs")


def a_run(kind: type[Benchmark], folder: Path) -> Path:
    """What `python -m benchmarks` writes."""
    benchmark = kind().quick()
    results = run_answered(benchmark, folder)
    path = benchmark.write(results, folder)
    benchmark.draw(results, path.with_suffix(".png"))
    return path


def taken(pages: Any, run: Path) -> str:
    pages.take(run)
    for path, text in pages.written().items():
        path.write_text(text)
    return str((pages.folder / f"{run.stem}.md").read_text())


def test_each_page_is_what_its_data_says(script: Mapping[str, Any]) -> None:
    pages = script["Pages"](FOLDER)
    stale = [path.name for path, text in pages.written().items() if path.read_text() != text]
    assert stale == [], "run: python -m benchmarks.pages"
    assert pages.without_reason() == []
    assert set(script["PAGES"]) == {kind.name for kind in BENCHMARKS}


def test_nothing_is_published_that_wants_to_be_measured_again() -> None:
    assert not [p.name for p in FOLDER.glob("*.md") if "easure again" in p.read_text()]


@pytest.mark.parametrize("kind", WITH_CHIEFS, ids=lambda kind: kind.name)
def test_a_run_is_put_on_its_page(kind: type[Benchmark], pages: Any, tmp_path: Path) -> None:
    run = a_run(kind, tmp_path)
    before = (pages.folder / f"{kind.name}.md").read_text()
    text = taken(pages, run)
    result = re.search(r"^## Result\n(.*?)^## What follows\n", text, re.M | re.S)
    assert result is not None
    machine = json.loads(run.read_text())["machine"]
    assert machine["processor"] in result[1]
    assert f"](pictures/{kind.name}.png)" in result[1]
    assert f"](data/{kind.name}.json)" in result[1]
    # All columns of a row, and at least one number.
    rows = [line for line in result[1].splitlines() if re.match(r"\| [^|]+ \|.*\d", line)]
    assert rows
    # What people wrote stays.
    assert text.replace(result[1], "") == re.sub(
        r"(^## Result\n).*?(?=^## What follows\n)", r"\1", before, flags=re.M | re.S
    )
    assert all(path.read_text() == now for path, now in pages.written().items())


def test_strategies_have_tables_for_a_page(script: Mapping[str, Any], tmp_path: Path) -> None:
    run = a_run(next(k for k in BENCHMARKS if k.name == "strategies"), tmp_path)
    entries = json.loads(run.read_text())["cases"]
    trained, tasks, slow, asks = (
        "\n".join(t.lines(entries)) for t in script["PAGES"]["strategies"]
    )
    assert re.search(
        r"\| tfps asynchronous \| 640 \(640-640\) \| 80.0 \(80.0-80.0\) \| 0 of 1", trained
    )
    assert "| it has no tables |" in trained
    assert "| tfps asynchronous | 1000 / 2000 | 1024 | 30.0 | 1000 / 2000 |" in tasks
    assert (
        "| 2560 | 2560 | 2560 | 0.25 | 0.75 | 0.50 | rests 0.500 s, it is back in 2.00 s |" in slow
    )
    assert "| tfps asynchronous | 9 | ps up | 3.00 |" in asks


def test_a_page_that_was_changed_is_found(pages: Any, tmp_path: Path) -> None:
    run = a_run(next(k for k in BENCHMARKS if k.name == "scaling"), tmp_path)
    page = pages.folder / "scaling.md"
    page.write_text(taken(pages, run).replace("| 1 worker | 100 |", "| 1 worker | 200 |"))
    assert pages.written()[page] != page.read_text()


def test_a_missed_aim_is_listed_with_its_reason_in_the_place_of_older_ones(
    pages: Any, tmp_path: Path
) -> None:
    run = a_run(next(k for k in BENCHMARKS if k.name == "scaling"), tmp_path)
    page = pages.folder / "aims.md"
    older = "| [many workers](scaling.md) | share of 16 times one worker | 0.95 | 0.9 | old |\n"
    placement = "| [placement](placement.md)"
    page.write_text(page.read_text().replace(placement, older + placement, 1))
    taken(pages, run)
    (missed,) = pages.without_reason()
    benchmark, _, bar = missed.partition(": ")
    assert (benchmark, bar) == ("scaling", "3 workers + 2 ps: share of 3 times one worker")
    reasons = {"scaling": {bar: "chiefs that answer at once"}}
    (pages.folder / "data/reasons.json").write_text(json.dumps(reasons))
    taken(pages, run)
    assert pages.without_reason() == []
    aims = page.read_text()
    assert "[many workers](scaling.md)" not in aims
    assert f"| [scaling](scaling.md) | {bar} | at least 0.95 | 0.333 | chiefs that answer" in aims
    assert "[placement](placement.md)" in aims


def test_the_numbers_of_before_stand_beside_those_of_now(pages: Any, tmp_path: Path) -> None:
    run = a_run(next(k for k in BENCHMARKS if k.name == "scaling"), tmp_path)
    report = json.loads(run.read_text())
    report["bars"] = [bar | {"value": 0.125} for bar in report["bars"][:1]]
    (pages.folder / "data").mkdir()
    (pages.folder / "data/scaling_before.json").write_text(json.dumps(report))
    text = taken(pages, run)
    assert "| aim | [was](data/scaling_before.json) | is | should be |" in text
    assert "| 0.125 | 0.333 | at least 0.95 |" in text


def test_a_picture_of_another_run_is_refused(pages: Any, tmp_path: Path) -> None:
    run = a_run(next(k for k in BENCHMARKS if k.name == "scaling"), tmp_path)
    os.utime(run.with_suffix(".png"), (0, 0))
    with pytest.raises(SystemExit, match="older than"):
        pages.take(run)
