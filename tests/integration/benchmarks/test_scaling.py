"""`benchmarks scaling` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
def test_quick_compares_several_workers_with_one(tmp_path: Path) -> None:
    content, _ = run_benchmark("scaling", "--workers", "2", output=tmp_path, timeout_s=270)
    assert [(case["workers"], case["ps"]) for case in content["cases"]] == [(1, 2), (2, 2)]
    for case in content["cases"]:
        assert case["samples"][0]["steps"] == 20 * case["workers"]
        assert is_spread(case["steps_per_s"], lowest=1e-6)
        assert is_spread(case["server_cpu_ms_per_push"])
        assert case["details"] == {"fallback_steps": 0, "carriers": ["direct", "direct"]}
    alone, together = (case["steps_per_s"]["median"] for case in content["cases"])
    assert alone < 1000 / content["settings"]["sleep_ms"]  # every step has slept
    kept, cost = content["bars"]
    assert kept["value"] == round(content["cases"][-1]["share_kept"], 3)
    assert abs(kept["value"] - together / (2 * alone)) < 0.01
    assert (kept["aim"], cost["aim"]) == (0.95, 0.5)
