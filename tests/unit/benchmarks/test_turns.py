"""The run of every benchmark with chiefs that answer at once: orders, counts and outputs."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.benchmark import Benchmark
from benchmarks.turn import TaskNumbers
from tests.unit.benchmarks.answers import ANSWERS, AnsweredBench
from tests.unit.benchmarks.outputs import outputs


def test_there_is_an_answer_for_every_benchmark_with_chiefs() -> None:
    assert {kind.name for kind in BENCHMARKS} == {*ANSWERS, "placement"}


@pytest.mark.parametrize(
    "kind", [kind for kind in BENCHMARKS if kind.name in ANSWERS], ids=lambda kind: kind.name
)
def test_every_turn_is_announced_understood_and_written(
    kind: type[Benchmark], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = kind().quick()
    bench = AnsweredBench(benchmark, tmp_path)
    results = bench.run()
    assert len(bench.titles) == len(bench.cases) > 0
    for case in bench.cases:
        inspect.signature(benchmark.measure).bind(TaskNumbers({}), **case)
    # A chief process has the same settings.
    monkeypatch.setattr(kind, "measure", lambda self, tasks, **case: (self, tasks.groups, case))
    settings = json.loads(json.dumps(benchmark.settings()))
    order = {"settings": settings, "groups": {"ps": [7]}, "case": bench.cases[0]}
    understood, groups, case = kind.answer(order)
    assert understood.as_json() == benchmark.as_json()
    assert (groups, case) == ({"ps": [7]}, bench.cases[0])
    written = outputs(benchmark, results, tmp_path)
    assert written.content["cases"]
    assert written.content["settings"]["repetitions"] == benchmark.as_json()["repetitions"]
