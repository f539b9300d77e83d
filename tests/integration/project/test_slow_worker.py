"""The picture of the README: it is drawn from the benchmark's numbers, which the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.slow_worker import FOLDER, rates
from tests.integration.project import pages
from tests.integration.project.pages import ROOT


def test_the_readme_says_what_is_drawn() -> None:
    kept = {row: slow / even for row, (even, slow) in rates().items()}
    (said,) = re.findall(
        r"!\[.*keeps (\d+) % of its rate, tfps (\d+) %\]\(\S*slow_worker\.png\)",
        pages.text_of("README.md"),
    )
    drawn = (kept["multi_worker"], kept["asynchronous"])
    assert tuple(map(int, said)) == tuple(round(100 * each) for each in drawn)
    page = pages.text_of("docs/benchmarks/strategies.md")
    for title, row in (
        ("multi-worker mirrored", "multi_worker"),
        ("tfps asynchronous", "asynchronous"),
    ):
        (beside,) = re.findall(rf"^\| {title} \|(?:[^|]*\|){{5}} (0\.\d+) \|", page, re.M)
        assert beside == f"{kept[row]:.2f}"


def test_the_script_draws_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.slow_worker", str(tmp_path)]
    subprocess.run(command, check=True, timeout=120, cwd=ROOT)
    assert [path.name for path in tmp_path.iterdir()] == ["slow_worker.png"]
    assert (FOLDER / "pictures/slow_worker.png").is_file()
