"""Every benchmark with chiefs that return at once: its turns, report, tables, picture and page."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.benchmark import Benchmark
from benchmarks.pages import FOLDER, Pages
from benchmarks.results import Results
from benchmarks.short_tables import PAGES
from benchmarks.turn import TaskNumbers
from tests.unit.benchmarks.chief_results import RESULTS, BenchWithoutChiefs
from tests.unit.benchmarks.outputs import Outputs, check_report, expected_keys, keys_of, outputs


@dataclass(frozen=True)
class QuickRun:
    """A quick run with results, and what it has written to a folder."""

    bench: BenchWithoutChiefs
    written: Outputs
    folder: Path

    @property
    def benchmark(self) -> Benchmark:
        return self.bench.benchmark


QUICK = ("batch", "recovery", "rows")  # the others repeat the contract
KINDS = [
    pytest.param(kind, marks=[] if kind.name in QUICK else pytest.mark.repeats, id=kind.name)
    for kind in BENCHMARKS
]


@pytest.fixture(scope="module", params=KINDS)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> QuickRun:
    folder = tmp_path_factory.mktemp("run")
    bench = BenchWithoutChiefs(request.param().quick(), folder)
    return QuickRun(bench, outputs(bench.benchmark, bench.run(), folder), folder)


def test_every_benchmark_is_played_and_has_tables_for_its_page() -> None:
    names = {kind.name for kind in BENCHMARKS}
    assert names == set(RESULTS) == set(PAGES)
    assert len(names) == 13


def test_every_turn_is_announced_and_understood_by_a_chief(played: QuickRun) -> None:
    benchmark, bench = played.benchmark, played.bench
    assert len(bench.titles) == len(bench.cases) > 0
    for case in bench.cases:
        inspect.signature(benchmark.measure).bind(TaskNumbers({}), **case)

    def measure(own: Benchmark, tasks: TaskNumbers, **case: Any) -> Any:
        return own, tasks.groups, case

    settings = json.loads(json.dumps(benchmark.settings()))
    order = {"settings": settings, "groups": {"ps": [7]}, "case": bench.cases[0]}
    with mock.patch.object(type(benchmark), "measure", measure):
        understood, groups, case = type(benchmark).run_order(order)
    assert understood.as_json() == benchmark.as_json()
    assert (groups, case) == ({"ps": [7]}, bench.cases[0])


def test_the_report_has_its_keys_and_every_aim_is_shown(played: QuickRun) -> None:
    content = played.written.content
    check_report(content, played.benchmark.name)
    assert keys_of(content) == expected_keys(played.benchmark.name)
    assert content["settings"] == json.loads(json.dumps(played.benchmark.as_json()))
    text = re.sub(r"\s+", "", played.written.text)
    for bar in content["bars"]:
        if bar["value"] is not None:
            assert re.sub(r"\s+", "", bar["name"]) in text, bar["name"]


def test_no_aim_is_judged_that_was_not_measured() -> None:
    for kind in BENCHMARKS:
        if kind.name not in ("batch", "scaling", "staleness"):  # these have cases in every run
            assert {bar.holds for bar in kind().bars(Results())} <= {None}


def test_a_run_is_put_on_its_page(played: QuickRun, tmp_path: Path) -> None:
    pages = Pages(tmp_path / "docs")
    shutil.copytree(FOLDER, pages.folder, ignore=shutil.ignore_patterns("data"))
    name = played.benchmark.name
    page = pages.folder / f"{name}.md"
    before = page.read_text()
    pages.copy_run(played.folder / f"{name}.json")
    for path, text in pages.written().items():
        path.write_text(text)
    result = re.search(r"^## Result\n(.*?)^## What follows\n", page.read_text(), re.M | re.S)
    assert result is not None
    assert played.written.content["machine"]["processor"] in result[1]
    assert f"](pictures/{name}.png)" in result[1]
    assert f"](data/{name}.json)" in result[1]
    assert [line for line in result[1].splitlines() if re.match(r"\| [^|]+ \|.*\d", line)]
    # What people wrote stays.
    assert page.read_text().replace(result[1], "") == re.sub(
        r"(^## Result\n).*?(?=^## What follows\n)", r"\1", before, flags=re.M | re.S
    )
    assert all(path.read_text() == now for path, now in pages.written().items())
