"""`python -m benchmarks NAME --quick` from the command line to its files.

Numbers are not looked at. The one that starts no cluster belongs to `make test`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.__main__ import BENCHMARKS
from tests.integration.project.pages import ROOT
from tests.unit.benchmarks.outputs import check_report, expected_keys, keys_of

# Where all of a quick run would only take longer.
FEWER = {
    "embedding": ["--tables=3", "--workers=1", "--ids=power_law"],
    "rows": ["--mib=2"],
    "scaling": ["--workers=2"],
    "strategies": [
        *("--shape=dense", "--shape=slow_4"),
        *("--row=one_process", "--row=asynchronous", "--row=tables"),
    ],
    "throughput": ["--model=mlp", "--workers=1", "--epoch-seconds=0.1"],
}


def run_quickly(name: str, output: Path) -> dict[str, Any]:
    """Run it, check what all benchmarks promise, and return its report."""
    options = [*FEWER.get(name, []), "--output", str(output)]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--quick", *options],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    # Long paths are on lines of their own.
    assert f"Written:{output}/{name}.json" in "".join(ran.stdout.split())
    with Image.open(output / f"{name}.png") as picture:
        assert picture.format == "PNG"
    content: dict[str, Any] = json.loads((output / f"{name}.json").read_text())
    check_report(content, name)
    return content


@pytest.mark.slow
def test_the_cheapest_runs(tmp_path: Path) -> None:
    content = run_quickly("placement", tmp_path)
    assert keys_of(content) == expected_keys("placement")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [kind.name for kind in BENCHMARKS])
def test_each_runs_and_reports(name: str, tmp_path: Path) -> None:
    if name in ("embedding", "throughput"):
        pytest.importorskip("tf_keras", reason="the stock strategy needs tf_keras: tfps[bench]")
    content = run_quickly(name, tmp_path)
    assert keys_of(content) <= expected_keys(name)
    for case in content["cases"]:
        for value in case.values():
            if isinstance(value, dict) and set(value) == {"min", "median", "max"}:
                assert value["min"] <= value["median"] <= value["max"]
        assert not case.get("details", {}).get("fallback_steps")
    assert not (tmp_path / "logs/checkpoints").exists()
