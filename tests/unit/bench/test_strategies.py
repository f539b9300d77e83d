from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bench.answers import AnsweredBench
from tests.unit.bench.outputs import outputs
from tfps.bench.results import Results
from tfps.bench.strategies import CANNOT, Strategies, by_shape, examples_per_s
from tfps.bench.strategy_rows import ROWS

NUMBERS = {
    "examples": 1000,
    "seconds": 20.0,
    "largest_task_mib": 700.0,
    "all_tasks_mib": 2000.0,
    "cpu_s": 30.0,
}


def add(results: Results, row: str, *, seed: int, epochs_s: list[float], accuracy: float) -> None:
    answer = {**NUMBERS, "epochs_s": epochs_s, "accuracy": accuracy}
    results.add(answer, seed=seed, model="dense", workers=2, row=row)


def test_the_epoch_that_traces_is_left_out_of_the_rate(tmp_path: Path) -> None:
    results = Results()
    add(results, "one_process", seed=1, epochs_s=[50.0, 1.0, 2.0], accuracy=0.8)
    add(results, "one_process", seed=2, epochs_s=[50.0, 4.0], accuracy=0.9)
    (case,) = results.cases
    spread = examples_per_s(case)
    assert (spread.minimum, spread.median, spread.maximum) == (250, 500, 1000)
    written = outputs(Strategies(), results, tmp_path)
    (entry,) = written.content["cases"]
    assert entry["accuracy"] == {"1": 0.8, "2": 0.9}
    assert entry["lines_changed"] == 0
    assert "500 (250-1000)" in written.text


def test_what_cannot_run_says_why_and_is_in_no_table(tmp_path: Path) -> None:
    results = Results()
    add(results, "mirrored", seed=1, epochs_s=[5.0, 1.0], accuracy=0.8)
    reason = {CANNOT: "status 1: No module named 'tf_keras'"}
    results.add(reason, seed=1, model="dense", workers=2, row="multi_worker")
    assert [case["row"] for case in by_shape(results)["dense", 2]] == ["mirrored"]
    written = outputs(Strategies(), results, tmp_path)
    said = " ".join(written.text.split())
    assert "multi-worker mirrored cannot run: status 1: No module" in said
    (entry,) = (case for case in written.content["cases"] if case["row"] == "multi_worker")
    assert entry[CANNOT] == ["status 1: No module named 'tf_keras'"]
    assert "accuracy" not in entry


def test_what_is_known_not_to_run_takes_no_turn(tmp_path: Path) -> None:
    benchmark = replace(Strategies().quick(), rows=("layers", "tables"))
    bench = AnsweredBench(benchmark, lambda turn: None, tmp_path)
    benchmark.run(bench)
    assert [(case["model"], case["row"]) for case in bench.cases] == [
        ("dense", "layers"),
        ("mixed", "tables"),
    ]
    reasons = {(c["model"], c["row"]): c.run.get(CANNOT) for c in bench.results.cases}
    assert reasons["dense", "tables"] == "it has no tables"
    assert reasons["mixed", "layers"] == "its tables and layers do not lie in a row"


def test_one_process_is_measured_once_and_a_backup_needs_a_second_worker() -> None:
    places = Strategies().places
    assert [p["workers"] for p in places if p["row"] == "one_process"] == [1, 1]  # of two models
    assert ROWS["backup_worker"].why_not("dense", 1) == "needs 2 workers"
    assert ROWS["backup_worker"].why_not("dense", 2) is None


def test_a_script_that_fails_answers_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(row: Any, workers: int) -> list[str]:
        return ["sh", "-c", "echo first; echo the reason >&2; exit 3"]

    monkeypatch.setattr(type(ROWS["mirrored"]), "command", command)
    answer = Strategies().measure(None, model="dense", workers=2, row="mirrored", seed=1)  # type: ignore[arg-type]
    assert answer == {CANNOT: "status 3: the reason"}
