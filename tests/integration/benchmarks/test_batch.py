"""`benchmarks batch` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.exchange import ELASTIC, KINDS
from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_measures_every_pair_and_names_one(tmp_path: Path) -> None:
    content, printed = run_benchmark("batch", output=tmp_path, timeout_s=570)
    pairs = [(case["kind"], case["period_steps"]) for case in content["cases"]]
    assert pairs == [*((kind, steps) for kind in KINDS[:2] for steps in (1, 16)), (ELASTIC, 16)]
    every_step, seldom = (content["cases"][k]["bytes_per_example"]["median"] for k in (2, 3))
    assert seldom < every_step / 4
    for case in content["cases"]:
        assert is_spread(case["examples_per_s"])
        assert is_spread(case["memory_mib"], lowest=50)
        assert case["details"] == {"fallback_steps": 0, "carriers": ["direct"]}
        assert case["curves"]["1"][0][0] < case["curves"]["1"][-1][0]
        wanted = 1e-3 * (case["batch_size"] / 64) ** 0.5
        assert case["learning_rate"] == pytest.approx(wanted, rel=1e-3)
    chosen = [case for case in content["cases"] if case["is_chosen"]]
    assert len(chosen) <= 1
    assert (content["choice"]["batch_size"] is None) == (not chosen)
    assert f": {content['choice']['reason']}." in " ".join(printed.split())
