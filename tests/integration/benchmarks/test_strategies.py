"""`benchmarks strategies` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.benchmarks.command import is_spread, run_benchmark

ROWS = ("one_process", "asynchronous")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_quick_runs_scripts_and_looks_at_them(tmp_path: Path) -> None:
    rows = [text for row in (*ROWS, "tables") for text in ("--row", row)]
    shapes = ["--shape", "dense", "--shape", "slow_4"]
    content, text = run_benchmark("strategies", *shapes, *rows, output=tmp_path, timeout_s=380)
    cases = {(case["shape"], case["row"]): case for case in content["cases"]}
    assert cases["dense", "tables"]["cannot"] == ["it has no tables"]
    assert "tables on workers cannot run: it has no tables" in " ".join(text.split())
    trained = {row: cases["dense", row] for row in ROWS}
    for case in trained.values():
        for name in ("examples_per_s", "seconds", "largest_task_mib", "cpu_s"):
            assert is_spread(case[name], lowest=1e-6)
        assert case["all_tasks_mib"]["median"] >= case["largest_task_mib"]["median"]
        assert 0.3 < case["accuracy"]["1"][-1] <= 1
    alone, cluster = trained.values()
    assert alone["lines_changed"] == 0
    # A chief, two workers and a server beside each other.
    assert cluster["all_tasks_mib"]["median"] > 2 * alone["all_tasks_mib"]["median"]
    assert set(cluster["tasks"]) == {"chief", "worker", "ps"}
    assert alone["bytes_up"] is None
    # A step of 64 examples pushes a gradient of 880 kB, and pulls as much. Bytes between two looks,
    # 0.2 s apart, count evenly, and an epoch has 0.8 s: some of its last ones count as later. Those
    # of one worker would be half.
    for name in ("bytes_up", "bytes_down"):
        assert cluster[name] is None or 0.6 < cluster[name] / (880_000 / 64) < 2
    slow = cases["slow_4", "asynchronous"]
    assert slow["after_kill"] == "goes on"
    assert 0 < slow["beside_slow"] < slow["steps_per_s"]
    assert slow["rest_s"] > 0
