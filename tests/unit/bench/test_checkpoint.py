"""`tfps bench checkpoint`: cases, what has an aim, the table and the picture."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path

from PIL import Image
from rich.console import Console

from tfps.bench.checkpoint.benchmark import SavingBenchmark
from tfps.bench.checkpoint.measured import CheckpointSample
from tfps.bench.checkpoint.plot import write_plot
from tfps.bench.checkpoint.results import CheckpointResults
from tfps.bench.checkpoint.table import tables, title_of
from tfps.bench.checkpoint.ways import BESIDE, RESTORE, SAVE, TENSORFLOW, TFPS, WAYS


def _results() -> CheckpointResults:
    results = CheckpointResults(1024, 2)
    for seconds in (3.0, 1.0, 2.0):
        for ps, what, way in [
            *((2, what, way) for way in WAYS for what in (SAVE, RESTORE)),
            (1, RESTORE, TFPS),
            (3, RESTORE, TFPS),
            (2, SAVE, BESIDE),
        ]:
            longer = 2.0 if way == TENSORFLOW else 1.0
            sample = CheckpointSample(
                way=way,
                what=what,
                seconds=longer * seconds,
                pause_s=0.01 * seconds,
                chief_mib=5.0,
                server_mib=70.0,
            )
            results.add(ps, [asdict(sample)])
    return results


def test_bars_compare_medians() -> None:
    assert [(bar.value, bar.holds) for bar in _results().bars()] == [
        (0.02, True),
        (0.02, True),
        (5.0, True),
        (0.5, True),
        (0.5, True),
    ]
    assert {bar.value for bar in CheckpointResults(1, 2).bars()} == {None}


def test_the_report(tmp_path: Path) -> None:
    content = json.loads(_results().report(SavingBenchmark().as_json()).write(tmp_path).read_text())
    assert len(content["cases"]) == 9
    assert content["cases"][0]["seconds"] == {"min": 1.0, "median": 2.0, "max": 3.0}
    assert content["settings"]["restored_ps"] == [1, 3]


def test_the_table_fits_an_ordinary_terminal() -> None:
    output, results = io.StringIO(), _results()
    Console(file=output, width=80).print(tables(results))
    text = output.getvalue()
    assert "…" not in text
    assert all(title_of(case, ps=2) in text for case in results.cases)


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    with Image.open(write_plot(_results(), tmp_path / "checkpoint.png")) as picture:
        assert picture.width > 1000
