from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.journal import TurnJournal
from benchmarks.results import Case, Results
from benchmarks.runner import run
from benchmarks.throughput import Throughput, largest_mib, memory_mib_by_role, ratio
from benchmarks.throughput_shapes import ROWS, SHAPES, Shape, shape_at
from benchmarks.turn import Turn
from benchmarks.workload import EPOCH_STEPS, split
from tests.unit.benchmarks.outputs import outputs, turn_of_row
from tfps.errors import ConfigError

MLP = SHAPES[0]


def take(results: Results, shape: Shape, row: str, answer: dict[str, Any]) -> None:
    case = {"row": row, "place": shape.place}
    Throughput().take(results, Turn(title=row, name=row, case=case), answer)


def add(
    results: Results, shape: Shape, row: str, steps_per_s: float, other_cores: float = 0.0
) -> None:
    """What a chief answers: one epoch of 100 steps at 1, and one at 50 steps per execution."""
    both = {"1": steps_per_s, "50": steps_per_s}
    take(results, shape, row, turn_of_row(both, other_cores=other_cores))


@pytest.fixture
def results() -> Results:
    measured = Results()
    for factor in (0.9, 1.0, 1.1):
        add(measured, MLP, "tfps_fit", 200 * factor)
        add(measured, MLP, "stock_fit", 100 * factor)
        add(measured, MLP, "single_fit", 400 * factor)
    return measured


def cases(results: Results) -> dict[tuple[str, int], Case]:
    own = Throughput().cases(results)
    return {(case["row"], case["steps_per_execution"]): case for case in own}


def test_turns_of_a_row_are_samples_of_one_case(results: Results) -> None:
    case = cases(results)["tfps_fit", 50]
    spread = case.steps_per_s
    assert (spread.minimum, spread.median, spread.maximum) == pytest.approx((180, 200, 220))
    assert case.cpu_ms_per_step.median == pytest.approx(2.0)


def test_shapes_and_rows_have_an_order_whatever_that_of_the_turns(results: Results) -> None:
    for shape in reversed(SHAPES[1:]):
        add(results, shape, "stock_fit", 100)
    found = Throughput().cases(results)
    assert list(dict.fromkeys(map(Throughput().title_of, found))) == [s.title for s in SHAPES]
    rows = ("single_fit", "stock_fit", "tfps_fit")
    in_order = [(case["row"], case["steps_per_execution"]) for case in found[:6]]
    assert in_order == [(row, length) for row in rows for length in (1, 50)]


def test_bars_compare_medians_and_know_what_was_not_measured(results: Results) -> None:
    bars = Throughput().bars(results)
    measured = [bar for bar in bars if bar.value is not None]
    assert [bar.aim for bar in measured] == [2.5, 4.0, 0.55, 1.7]
    assert [bar.value for bar in measured] == pytest.approx([2.0, 2.0, 0.5, 1.0])
    assert [bar.holds for bar in measured] == [False, False, False, True]
    assert len(bars) > len(measured)
    assert ratio(results, "stock_loop", cases(results)["stock_fit", 1]) is None


def test_every_case_is_written_with_its_ratios(results: Results, tmp_path: Path) -> None:
    written = outputs(Throughput(), results, tmp_path)
    found = {(case["row"], case["steps_per_execution"]): case for case in written.content["cases"]}
    assert len(found) == 6
    ours = found["tfps_fit", 50]
    assert ours["steps_per_s"] == {"min": 180.0, "median": 200.0, "max": 220.0}
    assert (ours["ratio_to_stock_fit"], ours["ratio_to_single_fit"]) == (2.0, 0.5)
    assert len(ours["samples"]) == 3
    assert ours["seconds_to_first_step"]["median"] == 1.5
    assert ours["memory_mib"]["ps"]["max"] == 400.0
    assert "200 (180-220)" in written.text
    assert "tfps fit over stock fit: 2.00" in written.text
    assert "(aim at most 1.7, reached)" in " ".join(written.text.split())


def test_a_busy_machine_is_named_below_the_tables(results: Results) -> None:
    output = io.StringIO()
    console = Console(file=output, width=200)
    console.print(Throughput().present(results))
    assert "other processes" not in output.getvalue()
    add(results, SHAPES[1], "tfps_fit", 100, other_cores=0.8)
    add(results, SHAPES[1], "stock_fit", 100, other_cores=0.1)
    console.print(Throughput().present(results))
    assert "other processes kept up to 0.8 cores busy" in output.getvalue()


def test_the_largest_task_has_the_memory(results: Results) -> None:
    assert largest_mib(memory_mib_by_role(cases(results)["tfps_fit", 50])) == 500.0
    answer = turn_of_row({"50": 10.0})
    answer["lengths"]["50"]["memory_mib"] = {"chief": 700.0}
    take(results, SHAPES[1], "single_fit", answer)
    (alone,) = results.of(**SHAPES[1].place)
    assert largest_mib(memory_mib_by_role(alone)) == 700.0


@pytest.mark.parametrize("count", [2, 5])
def test_a_picture_has_a_place_for_each_shape(results: Results, tmp_path: Path, count: int) -> None:
    for shape in SHAPES[1:count]:
        add(results, shape, "stock_loop", 50)
    outputs(Throughput(), results, tmp_path)


def test_without_tf_keras_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    journal = TurnJournal(tmp_path / "turns", is_resumed=False)
    with pytest.raises(ConfigError, match=r"pip install 'tfps\[bench\]'"):
        run(Throughput(), progress=print, log_dir=tmp_path, journal=journal)


def turns(settings: Throughput, folder: Path) -> Counter[tuple[str, str]]:
    return Counter(
        (shape_at(turn.case["place"]).title, turn.case["row"]) for turn in settings.plan(folder)
    )


def test_only_shapes_that_were_asked_for_are_measured(tmp_path: Path) -> None:
    every = [(shape.title, row) for shape in SHAPES for row in shape.rows]
    assert list(turns(Throughput(), tmp_path)) == every
    only = turns(Throughput(models=("mlp",), workers=(1,)), tmp_path)
    assert list(only) == [(MLP.title, row) for row in ROWS]


def test_other_ways_of_ours_are_measured_at_the_longest_execution_only() -> None:
    lengths = {row: MLP.lengths_of(row) for row in ROWS}
    required = ("single_fit", "stock_fit", "stock_loop", "tfps_fit", "tfps_loop")
    assert all(lengths.pop(row) == (1, 50) for row in required)
    assert set(lengths.values()) == {(50,)}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.title)
def test_every_aim_is_about_a_row_at_a_length_that_is_measured(shape: Shape) -> None:
    for aim in shape.aims:
        for row in (aim.row, aim.with_row):
            assert row in shape.rows
            assert aim.steps_per_execution in shape.lengths_of(row)


def test_what_takes_long_takes_fewer_turns(tmp_path: Path) -> None:
    found = turns(Throughput(), tmp_path)
    assert found[SHAPES[-1].title, "tfps_fit"] < found[MLP.title, "tfps_fit"]
    assert set(turns(Throughput(repetitions=1), tmp_path).values()) == {1}


def test_a_process_alone_has_no_cluster_beside_it(tmp_path: Path) -> None:
    only = Throughput(models=("mlp",), workers=(2,), repetitions=1)
    alone, *others = only.plan(tmp_path)
    assert (alone.case["row"], alone.tasks) == ("single_fit", None)
    counts = [(turn.tasks.workers, turn.tasks.ps) for turn in others if turn.tasks is not None]
    assert counts == [(2, 1)] * (len(ROWS) - 1)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.title)
def test_no_execution_is_cut_short_and_no_worker_idles(shape: Shape) -> None:
    assert shape.unit_steps % shape.workers == 0
    assert all(shape.unit_steps % length == 0 for length in shape.lengths)


@given(steps=st.integers(1, 200).map(lambda units: 100 * units))
def test_a_stretch_is_split_into_epochs_that_cut_no_execution_short(steps: int) -> None:
    rounds, epoch_steps = split(steps)
    assert epoch_steps % 100 == 0
    assert epoch_steps <= EPOCH_STEPS
    assert steps <= rounds * epoch_steps < steps + EPOCH_STEPS
