from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.bench.outputs import outputs, turn_of_row
from tfps.bench.journal import TurnJournal
from tfps.bench.results import Case, Results
from tfps.bench.runner import run
from tfps.bench.throughput import Throughput, by_shape, memory_mib, ratio
from tfps.bench.throughput_shapes import SHAPES, Shape
from tfps.bench.workload import EPOCH_STEPS, split
from tfps.errors import ConfigError

MLP = SHAPES[0]


def add(
    results: Results, shape: Shape, row: str, steps_per_s: float, other_cores: float = 0.0
) -> None:
    """What a chief answers: one epoch of 100 steps at 1, and one at 50 steps per execution."""
    both = {"1": steps_per_s, "50": steps_per_s}
    Throughput().add(results, shape, row, turn_of_row(both, other_cores=other_cores))


@pytest.fixture
def results() -> Results:
    measured = Results()
    for factor in (0.9, 1.0, 1.1):
        add(measured, MLP, "tfps_fit", 200 * factor)
        add(measured, MLP, "stock_fit", 100 * factor)
        add(measured, MLP, "single_fit", 400 * factor)
    return measured


def cases(results: Results) -> dict[tuple[str, int], Case]:
    return {(case["row"], case["steps_per_execution"]): case for case in by_shape(results)[MLP]}


def test_turns_of_a_row_are_samples_of_one_case(results: Results) -> None:
    case = cases(results)["tfps_fit", 50]
    spread = case.steps_per_s
    assert (spread.minimum, spread.median, spread.maximum) == pytest.approx((180, 200, 220))
    assert case.cpu_ms_per_step.median == pytest.approx(2.0)


def test_rows_stand_in_the_order_of_the_rows_not_of_the_turns(results: Results) -> None:
    rows = ("single_fit", "stock_fit", "tfps_fit")
    assert list(cases(results)) == [(row, length) for row in rows for length in (1, 50)]


def test_bars_compare_medians_and_know_what_was_not_measured(results: Results) -> None:
    bars = Throughput().bars(results)
    measured = [bar for bar in bars if bar.value is not None]
    assert [bar.aim for bar in measured] == [2.5, 4.0, 0.55, 1.7]
    assert [bar.value for bar in measured] == pytest.approx([2.0, 2.0, 0.5, 1.0])
    assert [bar.holds for bar in measured] == [False, False, False, True]
    assert len(bars) > len(measured)
    assert ratio(results, cases(results)["stock_fit", 1], "stock_loop") is None


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
    assert memory_mib(cases(results)["tfps_fit", 50]) == 500.0
    answer = turn_of_row({"50": 10.0})
    answer["lengths"]["50"]["memory_mib"] = {"chief": 700.0}
    Throughput().add(results, SHAPES[1], "single_fit", answer)
    (alone,) = by_shape(results)[SHAPES[1]]
    assert memory_mib(alone) == 700.0


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


def test_only_shapes_that_were_asked_for_are_measured() -> None:
    assert Throughput().shapes == list(SHAPES)
    assert Throughput(models=("mlp",), workers=(1,)).shapes == [MLP]


def test_other_ways_of_ours_are_measured_at_the_longest_execution_only() -> None:
    lengths = {row: tuple(Throughput().lengths(MLP, row)) for row in Throughput().rows}
    required = ("single_fit", "stock_fit", "stock_loop", "tfps_fit", "tfps_loop")
    assert all(lengths.pop(row) == (1, 50) for row in required)
    assert set(lengths.values()) == {(50,)}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.title)
def test_every_aim_is_about_a_row_at_a_length_that_is_measured(shape: Shape) -> None:
    settings = Throughput()
    for aim in shape.aims:
        for row in (aim.row, aim.with_row):
            assert row in settings.rows_of(shape)
            assert aim.steps_per_execution in settings.lengths(shape, row)


def test_what_takes_long_takes_fewer_turns() -> None:
    large = SHAPES[-1]
    assert Throughput().repetitions_of(large) < Throughput().repetitions_of(MLP)
    assert Throughput(repetitions=1).repetitions_of(large) == 1


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.title)
def test_no_execution_is_cut_short_and_no_worker_idles(shape: Shape) -> None:
    assert shape.unit_steps % shape.workers == 0
    lengths = Throughput().lengths(shape, "tfps_fit")
    assert all(shape.unit_steps % length == 0 for length in lengths)


@given(steps=st.integers(1, 200).map(lambda units: 100 * units))
def test_a_stretch_is_split_into_epochs_that_cut_no_execution_short(steps: int) -> None:
    rounds, epoch_steps = split(steps)
    assert epoch_steps % 100 == 0
    assert epoch_steps <= EPOCH_STEPS
    assert steps <= rounds * epoch_steps < steps + EPOCH_STEPS
