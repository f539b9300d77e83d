"""What all benchmarks get from `tfps.bench.runner`: options, orders, the report and the tables."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.table import Table

from tests.unit.bench.outputs import answer, sample
from tfps.bench.results import Bar, Case, Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import option
from tfps.bench.table import case_table, spread_text
from tfps.cli.bench import command_of


@dataclass(frozen=True)
class Demo(Benchmark):
    """Count, and say so.

    Args:
        sizes: to count.
        seconds: of each.
        folder: of nothing.
    """

    name = "demo"

    sizes: tuple[int, ...] = option((2, 4), click.IntRange(min=1), "How much; may be repeated.")
    seconds: float = option(1.5, click.FLOAT, "How long.", flag="--epoch-seconds")
    folder: Path | None = None

    def quick(self) -> Demo:
        return replace(self, repetitions=1)

    @property
    def turns(self) -> int:
        return len(self.sizes) * self.repetitions

    def run(self, bench: Bench) -> None:
        for size in self.sizes * self.repetitions:
            bench.progress(f"size {size}")
            bench.results.add(answer(sample(100 * size, other_cores=0.5)), size=size)

    def measure(self, tasks: TaskNumbers, *, size: int) -> Any:
        return [size, self.seconds, self.sizes, str(self.folder), len(tasks.groups["ps"])]

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        return {"steps_per_s": case.steps_per_s}

    def bars(self, results: Results) -> list[Bar]:
        return [Bar("4 over 2", results.ratio((4,), (2,)), 1.5)]

    def tables(self, results: Results) -> list[Table]:
        names = [str(case["size"]) for case in results.cases]
        columns = {"steps/s": lambda case: spread_text(case.steps_per_s)}
        return [case_table("Sizes", names, results.cases, columns)]

    def explanation(self, results: Results) -> str:
        return "Medians."

    def draw(self, results: Results, path: Path) -> None:
        path.write_text("a picture")


@pytest.fixture
def demo() -> click.Command:
    return command_of(Demo)


def test_fields_are_options(demo: click.Command) -> None:
    helped = " ".join(CliRunner().invoke(demo, ["--help"]).output.split())
    assert "Count, and say so. Options:" in helped
    assert "--sizes INTEGER RANGE How much; may be repeated. [default: 2, 4] [x>=1]" in helped
    assert "--epoch-seconds FLOAT How long. [default: 1.5]" in helped
    assert "--folder" not in helped


def test_a_run_prints_and_writes_what_was_measured(demo: click.Command, tmp_path: Path) -> None:
    folder = tmp_path / "new/folder"
    arguments = ["--sizes", "4", "--sizes", "2", "--quick", "--output", str(folder)]
    ran = CliRunner().invoke(demo, arguments, catch_exceptions=False)
    assert "turn 1 of 2  size 2" in ran.output
    assert "turn 2 of 2  size 4" in ran.output
    assert "4 over 2: 2.00 (aim at least 1.5, reached)" in ran.output
    assert "other processes kept up to 0.5 cores" in " ".join(ran.output.split())
    content = json.loads((folder / "demo.json").read_text())
    assert list(content) == [
        "benchmark",
        "settings",
        "machine",
        "package_versions",
        "bars",
        "cases",
    ]
    assert content["machine"]["cores"] >= 1
    assert content["settings"] == {
        "sizes": [2, 4],
        "seconds": 1.5,
        "folder": None,
        "repetitions": 1,
    }
    assert [case["size"] for case in content["cases"]] == [2, 4]
    assert content["cases"][0]["steps_per_s"]["median"] == 200
    assert (folder / "demo.png").exists()


def test_what_is_given_counts_more_than_what_is_quick(demo: click.Command, tmp_path: Path) -> None:
    arguments = ["--quick", "--repetitions", "2", "--output", str(tmp_path)]
    assert "turn 4 of 4" in CliRunner().invoke(demo, arguments, catch_exceptions=False).output


def test_a_chief_has_the_settings_and_the_case(tmp_path: Path) -> None:
    settings = json.loads(json.dumps(Demo(seconds=0.5, folder=tmp_path).as_json()))
    order = {"settings": settings, "groups": {"ps": [1, 2]}, "case": {"size": 3}}
    assert Demo.answer(order) == [3, 0.5, (2, 4), str(tmp_path), 2]
