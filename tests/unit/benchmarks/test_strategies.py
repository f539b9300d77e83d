from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.results import Results
from benchmarks.script_run import CANNOT
from benchmarks.strategies import Strategies, by_shape, examples_per_s, goal_text, seconds_to_goal
from benchmarks.strategy_rows import ROWS, SHAPES
from tests.unit.benchmarks.answers import AnsweredBench, run_answered, script
from tests.unit.benchmarks.outputs import outputs


def add(results: Results, shape: str, row: str, *, seed: int = 1, **numbers: Any) -> None:
    results.add({**script({"shape": shape}), **numbers}, shape=shape, row=row, seed=seed)


def test_a_run_is_told_whole(tmp_path: Path) -> None:
    benchmark = Strategies().quick()
    written = outputs(benchmark, run_answered(benchmark, tmp_path), tmp_path)
    cases = {(case["shape"], case["row"]): case for case in written.content["cases"]}
    dense = cases["dense", "asynchronous"]
    assert dense["accuracy"] == {"1": [0.5, 0.8]}
    assert (dense["bytes_up"], dense["bytes_down"]) == (1000, 2000)
    # Four workers as fast as one are a quarter of linear, and wait for three quarters.
    slow = cases["slow_4", "asynchronous"]
    assert (slow["share_of_linear"], slow["waiting_share"]) == (0.25, 0.75)
    assert (slow["after_kill"], slow["rest_s"], slow["back_s"]) == ("goes on", 0.5, 2.0)
    # Of 4 GiB one is taken already, and the tables lie on four servers, or in each process.
    assert cases["large", "asynchronous"]["largest_model_per_gib"] == 3
    assert cases["large", "one_process"]["largest_model_per_gib"] == 0.75
    assert cases["large", "mirrored"]["largest_model_per_gib"] == 0.19


def test_the_epoch_that_traces_is_left_out_of_the_rate(tmp_path: Path) -> None:
    results = Results()
    add(results, "dense", "one_process", epochs_s=[50.0, 1.28, 2.56], accuracies=[0.1, 0.5, 0.8])
    add(results, "dense", "one_process", seed=2, epochs_s=[50.0, 5.12], accuracies=[0.1, 0.9])
    (case,) = results.cases
    spread = examples_per_s(case)
    assert (spread.minimum, spread.median, spread.maximum) == (250, 500, 1000)
    written = outputs(Strategies(), results, tmp_path)
    (entry,) = written.content["cases"]
    assert entry["accuracy"] == {"1": [0.1, 0.5, 0.8], "2": [0.1, 0.9]}
    assert entry["lines_changed"] == 0
    assert "500 (250-1000)" in written.text


accuracies = st.lists(st.floats(0, 1), min_size=1, max_size=5)


@given(accuracies, st.floats(0, 1))
def test_the_goal_is_reached_at_the_end_of_an_epoch(found: list[float], goal: float) -> None:
    run = {"epochs_s": [2.0] * len(found), "accuracies": found}
    seconds = seconds_to_goal(run, goal)
    reached = [2.0 * (k + 1) for k, accuracy in enumerate(found) if accuracy >= goal]
    assert seconds == min(reached, default=None)


def test_a_seed_that_misses_the_goal_is_told() -> None:
    results = Results()
    add(results, "dense", "mirrored", epochs_s=[1.0, 1.0], accuracies=[0.1, 0.95])
    (case,) = results.cases
    assert goal_text(case) == 2.0
    add(results, "dense", "mirrored", seed=2, epochs_s=[1.0, 1.0], accuracies=[0.1, 0.2])
    assert goal_text(case) == "1 of 2"


def test_what_cannot_run_says_why_and_is_in_no_table(tmp_path: Path) -> None:
    results = Results()
    add(results, "dense", "mirrored")
    reason = {CANNOT: "status 1: No module named 'tf_keras'"}
    results.add(reason, shape="dense", row="multi_worker", seed=1)
    assert [case["row"] for case in by_shape(results)["dense"]] == ["mirrored"]
    written = outputs(Strategies(), results, tmp_path)
    said = " ".join(written.text.split())
    assert "multi-worker mirrored cannot run: status 1: No module" in said
    (entry,) = (case for case in written.content["cases"] if case["row"] == "multi_worker")
    assert entry[CANNOT] == ["status 1: No module named 'tf_keras'"]
    assert "accuracy" not in entry


def test_what_is_known_not_to_run_takes_no_turn(tmp_path: Path) -> None:
    benchmark = replace(Strategies().quick(), rows=("layers", "tables"), shapes=("dense", "mixed"))
    bench = AnsweredBench(benchmark, tmp_path)
    results = bench.run()
    assert [(case["shape"], case["row"]) for case in bench.cases] == [
        ("dense", "layers"),
        ("mixed", "tables"),
    ]
    reasons = {(c["shape"], c["row"]): c.run.get(CANNOT) for c in results.cases}
    assert reasons["dense", "tables"] == "it has no tables"
    assert reasons["mixed", "layers"] == "its tables and layers do not lie in a row"


def test_only_what_is_trained_to_an_accuracy_is_repeated(tmp_path: Path) -> None:
    seeds: dict[str, set[Any]] = {name: set() for name in SHAPES}
    for turn in Strategies().plan(tmp_path):
        seeds[turn.case["shape"]].add(turn.seed)
    assert [name for name, found in seeds.items() if found == {1, 2, 3}] == ["dense", "mixed"]
    assert all(found == {1} for name, found in seeds.items() if name not in ("dense", "mixed"))


def test_one_process_waits_alone_and_a_backup_needs_a_second_worker(tmp_path: Path) -> None:
    turns = Strategies(rows=("one_process",), shapes=("slow_1", "slow_2")).plan(tmp_path)
    assert [turn.case["shape"] for turn in turns] == ["slow_1"]
    backup = ROWS["backup_worker"]
    assert backup.why_not(SHAPES["slow_1"]) == "needs 2 workers"
    assert backup.why_not(SHAPES["slow_2"]) is None


def test_a_script_that_fails_answers_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(row: Any, shape: Any) -> list[str]:
        return ["sh", "-c", "echo first; ulimit -d >&2; exit 3"]

    monkeypatch.setattr(type(ROWS["mirrored"]), "command", command)
    for shape, limit in (("dense", "unlimited"), ("large", str(SHAPES["large"].memory_kib))):
        answer = Strategies().measure(None, shape=shape, row="mirrored", seed=1)  # type: ignore[arg-type]
        assert answer == {CANNOT: f"status 3: {limit}"}
    answer = Strategies().measure(None, shape="slow_4", row="multi_worker", seed=1)  # type: ignore[arg-type]
    assert answer == {CANNOT: "status 3: unlimited"}


def test_an_error_says_more_than_who_started_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(row: Any, shape: Any) -> list[str]:
        return ["sh", "-c", "echo '[chief] ValueError: no data'; echo tfps: it ended; exit 1"]

    monkeypatch.setattr(type(ROWS["mirrored"]), "command", command)
    answer = Strategies().measure(None, shape="dense", row="mirrored", seed=1)  # type: ignore[arg-type]
    assert answer == {CANNOT: "status 1: [chief] ValueError: no data"}


def test_a_script_without_memory_says_so_above_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(row: Any, shape: Any) -> list[str]:
        return ["sh", "-c", "echo std::bad_alloc; echo a stack; kill -6 $$"]

    monkeypatch.setattr(type(ROWS["mirrored"]), "command", command)
    answer = Strategies().measure(None, shape="large", row="mirrored", seed=1)  # type: ignore[arg-type]
    assert answer == {CANNOT: "SIGABRT: not enough memory"}
