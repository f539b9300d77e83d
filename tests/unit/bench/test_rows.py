from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from tfps.bench.rows.benchmark import Rows
from tfps.bench.rows.plot import write_plot
from tfps.bench.rows.results import RowsResults
from tfps.bench.rows.table import tables


def turn(steps_per_s: float) -> dict[str, Any]:
    """What a chief answers: one epoch of 100 steps."""
    sample = {
        "steps": 100,
        "seconds": 100 / steps_per_s,
        "cpu_seconds": 0.3,
        "other_cpu_seconds": 0.0,
        "group_cpu_seconds": {"worker": 0.1, "ps": 0.1},
    }
    return {"samples": [sample], "details": {"fallback_steps": 0, "carriers": ["direct"]}}


RATES = {
    ("sgd", 64, False): 20,
    ("sgd", 64, True): 200,
    ("sgd", 256, False): 5,
    ("sgd", 256, True): 150,
    ("adam", 64, False): 10,
    ("adam", 64, True): 50,
}


@pytest.fixture
def results() -> RowsResults:
    measured = RowsResults()
    for factor in (0.98, 1.0, 1.02):
        for (optimizer, mib, by_rows), rate in RATES.items():
            measured.add(optimizer, mib, by_rows=by_rows, result=turn(factor * rate))
    return measured


def test_rows_are_compared_with_all_rows_and_sizes_with_each_other(
    results: RowsResults, tmp_path: Path
) -> None:
    content = json.loads(results.report(Rows().as_json()).write(tmp_path).read_text())
    assert [(bar["name"], bar["value"], bar["holds"]) for bar in content["bars"]] == [
        ("sgd, 64 MiB: rows of the batch over all rows", 10.0, True),
        ("sgd, 256 MiB: rows of the batch over all rows", 30.0, True),
        ("adam, 64 MiB: rows of the batch over all rows", 5.0, False),
        ("sgd, rows of the batch: 256 MiB over 64 MiB", 0.75, False),
    ]
    cases = [(case["optimizer"], case["mib"], case["by_rows"]) for case in content["cases"]]
    assert cases == list(RATES)


def test_other_sizes_have_no_aim() -> None:
    results = RowsResults()
    results.add("sgd", 3, by_rows=False, result=turn(20))
    results.add("sgd", 3, by_rows=True, result=turn(100))
    assert results.bars() == []
    assert len(results.pairs) == 1


def test_a_quick_run_has_small_tables() -> None:
    assert Rows().turns == 24
    assert Rows().quick().turns == 8


def test_the_table_fits_an_ordinary_terminal(results: RowsResults) -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    assert "200 (196-204)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_plot_is_a_picture(results: RowsResults, tmp_path: Path) -> None:
    with Image.open(write_plot(results, tmp_path / "rows.png")) as picture:
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24) or []) > 10
