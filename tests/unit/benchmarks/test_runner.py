"""What all benchmarks share: options, turns and their clusters, the report and the tables."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from benchmarks import runner
from benchmarks.__main__ import command_of
from benchmarks.benchmark import Benchmark
from benchmarks.interval import Interval
from benchmarks.results import Bar, Case, Measure, Results, Spread, in_json, rate
from benchmarks.runner import Bench
from benchmarks.settings import choices, option
from benchmarks.table import middle
from benchmarks.turn import TaskNumbers, Tasks, Turn
from tests.unit.benchmarks.outputs import answer, sample


@dataclass(frozen=True)
class Demo(Benchmark):
    """Count, and say so.

    Args:
        sizes: to count.
        seconds: of each.
        folder: of nothing.
    """

    name = "demo"
    chooses = ("repetitions", "sizes")

    sizes: tuple[int, ...] = option((2, 4), "How much; may be repeated.")
    ways: tuple[str, ...] = choices(("up", "down"), "Only this way.", flag="--way")
    workers: tuple[int, ...] = choices((1, 2), "Only so many workers.")
    seconds: float = option(1.5, "How long.", click.FLOAT, flag="--epoch-seconds")
    folder: Path | None = None

    def quick(self) -> Demo:
        return replace(self, repetitions=1)

    def plan(self, folder: Path) -> Iterator[Turn]:
        for size in self.sizes * self.repetitions:
            case = {"size": size, "images_path": str(folder / "images")}
            yield Turn(title=f"size {size}", name="size", case=case, axes={"size": size})

    def measure(self, tasks: TaskNumbers, *, size: int) -> Any:
        return [size, self.seconds, self.sizes, str(self.folder), len(tasks.groups["ps"])]

    def measures(self, results: Results) -> list[Measure]:
        return [
            Measure("steps_per_s", rate, "steps/s", middle),
            Measure("squared", lambda case: case["size"] ** 2),
            Measure("", lambda case: f"<{case['size']}>", "only\nshown"),
        ]

    def bars(self, results: Results) -> list[Bar]:
        return [Bar("4 over 2", results.ratio((4,), (2,)), 1.5)]

    def title_of(self, case: Case) -> str:
        return "Small" if case["size"] < 5 else "Large"

    def row_of(self, case: Case) -> str:
        return "even" if case["size"] % 2 == 0 else "odd"

    def explanation(self, results: Results) -> str:
        return "Medians."

    def draw(self, results: Results, path: Path) -> None:
        path.write_text("a picture")


def run_command(
    kind: type[Benchmark], *options: str, output: Path, chief: Callable[[Any], Any]
) -> Result:
    """Run the command of a benchmark, whose chiefs are stood in for by what answers a case."""
    with mock.patch.object(Bench, "_ask_chief", lambda bench, turn, cluster, order: chief(order)):
        return CliRunner().invoke(command_of(kind), [*options, "--output", str(output)])


def count(order: Any) -> Any:
    return answer(sample(100 * order["case"]["size"], other_cores=0.5))


def test_fields_are_options() -> None:
    helped = " ".join(CliRunner().invoke(command_of(Demo), ["--help"]).output.split())
    assert "Count, and say so. Options:" in helped
    assert "--sizes INTEGER RANGE How much; may be repeated. [default: 2, 4] [x>=1]" in helped
    assert "--way [up|down] Only this way." in helped
    assert "--workers INTEGER RANGE Only so many workers. [1<=x<=2]" in helped
    assert "--epoch-seconds FLOAT How long. [default: 1.5]" in helped
    assert "--folder" not in helped


def test_a_run_prints_and_writes_what_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "new/folder"
    arguments = ["--sizes", "4", "--sizes", "2", "--way", "up", "--quick"]
    ran = run_command(Demo, *arguments, output=folder, chief=count)
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
        "ways": ["up"],
        "workers": [1, 2],
        "seconds": 1.5,
        "folder": None,
        "repetitions": 1,
    }
    assert (folder / "demo.png").exists()
    assert not list((folder / "logs").glob("turns-*")), "what the turns needed is left"


def test_what_is_given_counts_more_than_what_is_quick(tmp_path: Path) -> None:
    ran = run_command(Demo, "--quick", "--repetitions", "2", output=tmp_path, chief=count)
    assert "turn 4 of 4" in ran.output


def test_a_chief_has_the_settings_and_the_case(tmp_path: Path) -> None:
    settings = json.loads(json.dumps(Demo(seconds=0.5, folder=tmp_path).settings()))
    order = {"settings": settings, "groups": {"ps": [1, 2]}, "case": {"size": 3}}
    assert Demo.answer(order) == [3, 0.5, (2, 4), str(tmp_path), 2]


def results_of(*sizes: int) -> Results:
    results = Results()
    for size in sizes:
        results.add(answer(sample(100 * size)), size=size)
    return results


def test_what_is_measured_stands_in_the_report_and_in_the_tables(tmp_path: Path) -> None:
    results = results_of(4, 2, 3, 8)
    first, *_ = json.loads(Demo().write(results, tmp_path).read_text())["cases"]
    assert list(first) == ["size", "steps_per_s", "squared", "other_cores", "samples", "details"]
    assert first["squared"] == 16
    assert first["steps_per_s"] == {"min": 400.0, "median": 400.0, "max": 400.0}
    output = io.StringIO()
    Console(file=output, width=80).print(Demo().present(results))
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    # One table for each title; a row that is called as the one above has no name.
    assert lines.index("Small") < lines.index("Large")
    shown = [line.split() for line in lines if "<" in line]
    assert shown == [
        ["even", "400", "<4>"],
        ["200", "<2>"],
        ["odd", "300", "<3>"],
        ["even", "800", "<8>"],
    ]


@pytest.mark.parametrize(
    ("places", "expected"), [(None, [2, 3, 4]), ([3, 4, 2], [3, 4, 2])], ids=["size", "given"]
)
def test_cases_have_an_order(places: list[int] | None, expected: list[int]) -> None:
    found = results_of(4, 2, 3).in_order({"size": places})
    assert [case["size"] for case in found] == expected
    assert [case["size"] for case in results_of(4, 2, 3).in_order({})] == [4, 2, 3]


def test_spreads_and_intervals_are_written_wherever_they_are() -> None:
    spread = {"min": 1.0, "median": 1.0, "max": 1.0}
    interval = Interval.of_seeds({1: 0.5, 2: 0.5}, {1: 0.4, 2: 0.4})
    assert interval is not None
    given = {"a": [Spread.of([1.0])], "b": {"c": Spread.of([1.0])}, "d": interval, "e": None}
    expected = {"a": [spread], "b": {"c": spread}, "d": interval.as_json(), "e": None}
    assert in_json(given) == expected


class PlayedCluster:
    """Remembers which ones run."""

    running: list[str] = []  # noqa: RUF012

    def __init__(self, workers: int, ps: int, *, log_dir: Path, environment: Any) -> None:
        self.name, self.chief_command = log_dir.name, ()
        jobs = {"worker": workers, "ps": ps}
        self.spec = SimpleNamespace(
            tasks=lambda role: [(role, index, "") for index in range(jobs[role])]
        )
        self.running.append(self.name)

    def pid(self, task_type: str, index: int) -> int:
        return 100 + index

    def close(self) -> None:
        self.running.remove(self.name)

    def __enter__(self) -> PlayedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Clusters(Demo):
    """Two clusters go on from turn to turn, one is that of its turn, and one turn has none."""

    name = "clusters"

    def plan(self, folder: Path) -> Iterator[Turn]:
        known = answer()
        for size, name in enumerate(("first", "second", "first", "", "second", None, "known")):
            yield Turn(
                title=str(name),
                name=f"turn_{size}",
                case={"size": size},
                tasks=None if name is None else Tasks(workers=2, ps=1, name=name),
                joins=size != 1,
                known=known if name == "known" else None,
            )


def test_a_cluster_lives_as_long_as_turns_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LocalCluster", PlayedCluster)
    seen: dict[str, Any] = {}

    def ask(bench: Bench, turn: Turn, cluster: Any, order: Any) -> Any:
        groups = order["groups"]
        seen[turn.name] = [*PlayedCluster.running], cluster and cluster.name, groups
        return answer()

    monkeypatch.setattr(Bench, "_ask_chief", ask)
    journal: Any = SimpleNamespace(answer=lambda about, measure: measure(), kept=0)
    titles: list[str] = []
    runner.run(
        Clusters(),
        progress=lambda number, of, title: titles.append(f"{number}/{of} {title}"),
        log_dir=tmp_path,
        journal=journal,
    )
    groups = {"worker": [100, 101], "ps": [100]}
    assert seen == {
        "turn_0": (["first"], "first", groups),
        "turn_1": (["first", "second"], None, groups),  # the chief is none of its tasks
        "turn_2": (["first", "second"], "first", groups),
        "turn_3": (["second", "cluster"], "cluster", groups),
        "turn_4": (["second"], "second", groups),
        "turn_5": ([], None, {}),
    }
    assert titles == [
        f"{n}/6 {t}" for n, t in enumerate(("first", "second", "first", "", "second", None), 1)
    ]
    assert PlayedCluster.running == []


def test_clusters_end_with_a_run_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LocalCluster", PlayedCluster)
    monkeypatch.setattr(Bench, "_ask_chief", mock.Mock(side_effect=RuntimeError("on purpose")))
    journal: Any = SimpleNamespace(answer=lambda about, measure: measure(), kept=0)
    with pytest.raises(RuntimeError, match="on purpose"):
        runner.run(Clusters(), progress=mock.Mock(), log_dir=tmp_path, journal=journal)
    assert PlayedCluster.running == []
