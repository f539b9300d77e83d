from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from tfps.bench.throughput import benchmark as throughput
from tfps.bench.throughput.benchmark import Throughput
from tfps.bench.throughput.plot import write_plot
from tfps.bench.throughput.results import ThroughputCase, ThroughputResults
from tfps.bench.throughput.shapes import SHAPES, Shape
from tfps.bench.throughput.table import tables
from tfps.bench.workload import EPOCH_STEPS, split
from tfps.errors import ConfigError

MLP = SHAPES[0]


def turn(steps_per_s: float, cpu_ms: float = 2.0, other_cores: float = 0.0) -> dict[str, Any]:
    """What a chief answers: one epoch of 100 steps at 1, and one at 50 steps per execution."""
    sample = {
        "steps": 100,
        "seconds": 100 / steps_per_s,
        "cpu_seconds": 0.1 * cpu_ms,
        "other_cpu_seconds": other_cores * 100 / steps_per_s,
        "group_cpu_seconds": {},
    }
    return {"samples": {"1": [sample], "50": [sample]}, "details": {}}


@pytest.fixture
def results() -> ThroughputResults:
    measured = ThroughputResults()
    for factor in (0.9, 1.0, 1.1):
        measured.add(MLP, "tfps_fit", turn(200 * factor))
        measured.add(MLP, "stock_fit", turn(100 * factor))
        measured.add(MLP, "single_fit", turn(400 * factor))
    return measured


def cases(results: ThroughputResults, shape: Shape) -> dict[tuple[str, int], ThroughputCase]:
    return {(case.row, case.steps_per_execution): case for case in results.of_shape(shape)}


def test_turns_of_a_row_are_samples_of_one_case(results: ThroughputResults) -> None:
    case = cases(results, MLP)["tfps_fit", 50]
    spread = case.steps_per_s
    assert (spread.minimum, spread.median, spread.maximum) == pytest.approx((180, 200, 220))
    assert case.cpu_ms_per_step.median == pytest.approx(2.0)


def test_rows_stand_in_the_order_of_the_rows_not_of_the_turns(results: ThroughputResults) -> None:
    assert list(cases(results, MLP)) == [
        ("single_fit", 1),
        ("single_fit", 50),
        ("stock_fit", 1),
        ("stock_fit", 50),
        ("tfps_fit", 1),
        ("tfps_fit", 50),
    ]


def test_bars_compare_medians_and_know_what_was_not_measured(results: ThroughputResults) -> None:
    measured = [bar for bar in results.bars() if bar.value is not None]
    assert [bar.aim for bar in measured] == [4.0, 5.0, 0.75, 1.6]
    assert [bar.value for bar in measured] == pytest.approx([2.0, 2.0, 0.5, 1.0])
    assert [bar.holds for bar in measured] == [False, False, False, True]
    assert len(results.bars()) > len(measured)
    assert results.ratio(cases(results, MLP)["stock_fit", 1], "stock_loop") is None


def test_the_report_holds_every_case_with_its_ratios(
    results: ThroughputResults, tmp_path: Path
) -> None:
    path = results.report(Throughput().as_json()).write(tmp_path)
    written = {
        (case["row"], case["steps_per_execution"]): case
        for case in json.loads(path.read_text())["cases"]
    }
    assert len(written) == 6
    assert written["tfps_fit", 50]["steps_per_s"] == {"min": 180.0, "median": 200.0, "max": 220.0}
    assert written["tfps_fit", 50]["ratio_to_stock_fit"] == 2.0
    assert written["tfps_fit", 50]["ratio_to_single_fit"] == 0.5
    assert len(written["tfps_fit", 50]["samples"]) == 3


def test_the_table_fits_an_ordinary_terminal(results: ThroughputResults) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    assert "200 (180-220)" in text
    assert "tfps fit over stock fit: 2.00" in text
    assert "(aim at most 1.6, reached)" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_a_busy_machine_is_named_below_the_tables(results: ThroughputResults) -> None:
    output = io.StringIO()
    Console(file=output, width=200).print(tables(results))
    assert "other processes" not in output.getvalue()
    results.add(SHAPES[1], "tfps_fit", turn(100, other_cores=0.8))
    results.add(SHAPES[1], "stock_fit", turn(100, other_cores=0.1))
    Console(file=output, width=200).print(tables(results))
    assert "other processes kept up to 0.8 cores busy" in output.getvalue()


def test_the_plot_is_a_picture(results: ThroughputResults, tmp_path: Path) -> None:
    results.add(replace(MLP, workers=2), "stock_loop", turn(50))
    with Image.open(write_plot(results, tmp_path / "throughput.png")) as picture:
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10


def test_without_tf_keras_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    with pytest.raises(ConfigError, match=r"pip install 'tfps\[bench\]'"):
        throughput.run(Throughput(), progress=print, log_dir=tmp_path)


def test_other_ways_of_ours_are_measured_at_the_longest_execution_only() -> None:
    lengths = {row: tuple(Throughput().lengths(row)) for row in Throughput().rows}
    required = ("single_fit", "stock_fit", "stock_loop", "tfps_fit", "tfps_loop")
    assert all(lengths.pop(row) == (1, 50) for row in required)
    assert set(lengths.values()) == {(50,)}


def test_every_aim_is_about_a_row_at_a_length_that_is_measured() -> None:
    settings = Throughput()
    for shape in settings.shapes:
        for aim in shape.aims:
            for row in (aim.row, aim.with_row):
                assert aim.steps_per_execution in settings.lengths(row)


@given(steps=st.integers(1, 200).map(lambda units: 100 * units))
def test_a_stretch_is_split_into_epochs_that_cut_no_execution_short(steps: int) -> None:
    rounds, epoch_steps = split(steps)
    assert epoch_steps % 100 == 0
    assert epoch_steps <= EPOCH_STEPS
    assert steps <= rounds * epoch_steps < steps + EPOCH_STEPS
