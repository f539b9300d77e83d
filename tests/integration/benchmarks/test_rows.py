"""`benchmarks rows` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
def test_quick_compares_both_ways(tmp_path: Path) -> None:
    content, _ = run_benchmark("rows", "--mib", "2", output=tmp_path, timeout_s=270)
    cases = [(case["optimizer"], case["mib"], case["by_rows"]) for case in content["cases"]]
    assert cases == [(name, 2, by_rows) for name in ("sgd", "adam") for by_rows in (False, True)]
    for case in content["cases"]:
        assert is_spread(case["steps_per_s"], lowest=1e-6)
        assert case["details"] == {"fallback_steps": 0, "carriers": ["direct"]}
    assert content["bars"] == []
