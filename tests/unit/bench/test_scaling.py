from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from tfps.bench.scaling.benchmark import Scaling
from tfps.bench.scaling.plot import write_plot
from tfps.bench.scaling.results import ScalingResults
from tfps.bench.scaling.table import tables


def turn(steps_per_s: float, ps_cpu_ms: float) -> dict[str, Any]:
    """What a chief answers: one epoch of 100 steps."""
    sample = {
        "steps": 100,
        "seconds": 100 / steps_per_s,
        "cpu_seconds": 0.3,
        "other_cpu_seconds": 0.0,
        "group_cpu_seconds": {"worker": 0.1, "ps": 0.1 * ps_cpu_ms},
    }
    return {"samples": [sample], "details": {"fallback_steps": 0, "carriers": ["direct"]}}


@pytest.fixture
def results() -> ScalingResults:
    measured = ScalingResults(ps=2)
    for factor in (0.98, 1.0, 1.02):
        measured.add(16, turn(288 * factor, ps_cpu_ms=0.6))
        measured.add(1, turn(20 * factor, ps_cpu_ms=0.9))
    return measured


def test_the_share_is_of_what_the_workers_would_do_alone(results: ScalingResults) -> None:
    one, many = results.cases
    assert (one.workers, many.workers) == (1, 16)
    assert results.kept(one) == pytest.approx(1.0)
    assert results.kept(many) == pytest.approx(288 / 320)


def test_a_push_is_a_message_to_one_server(results: ScalingResults) -> None:
    assert results.cases[-1].server_cpu_ms_per_push.median == pytest.approx(0.3)


def test_the_share_is_a_gain_and_the_cpu_a_cost(results: ScalingResults, tmp_path: Path) -> None:
    content = json.loads(results.report(Scaling().as_json()).write(tmp_path).read_text())
    kept, cost = content["bars"]
    assert (kept["value"], kept["aim"], kept["holds"]) == (0.9, 0.95, False)
    assert (cost["value"], cost["aim"], cost["holds"]) == (0.3, 0.4, True)
    assert [case["workers"] for case in content["cases"]] == [1, 16]


def test_without_one_worker_nothing_is_compared() -> None:
    results = ScalingResults(ps=2)
    results.add(16, turn(288, ps_cpu_ms=0.6))
    assert results.kept(results.cases[0]) is None
    assert [bar.holds for bar in results.bars()] == [None, True]


def test_the_table_fits_an_ordinary_terminal(results: ScalingResults) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    assert "288 (282-294)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_plot_is_a_picture(results: ScalingResults, tmp_path: Path) -> None:
    with Image.open(write_plot(results, tmp_path / "scaling.png")) as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10
