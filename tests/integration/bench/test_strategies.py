"""`tfps bench strategies` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.bench.command import is_spread, run_benchmark

ROWS = ("one_process", "mirrored", "asynchronous")


@pytest.mark.slow
def test_quick_runs_scripts_and_takes_what_they_report(tmp_path: Path) -> None:
    rows = [text for row in (*ROWS, "tables") for text in ("--row", row)]
    content, text = run_benchmark(
        "strategies", "--model", "dense", *rows, output=tmp_path, timeout_s=270
    )
    cases = {case["row"]: case for case in content["cases"]}
    assert cases.pop("tables")["cannot"] == ["it has no tables"]
    assert "tables on workers cannot run: it has no tables" in " ".join(text.split())
    assert set(cases) == set(ROWS)
    for case in cases.values():
        for name in ("examples_per_s", "seconds", "largest_task_mib", "cpu_s"):
            assert is_spread(case[name], lowest=1e-6)
        assert case["all_tasks_mib"]["median"] >= case["largest_task_mib"]["median"]
        assert 0.3 < case["accuracy"]["1"] <= 1
    assert cases["one_process"]["lines_changed"] == 0
    # A chief, two workers and a server beside each other.
    alone, cluster = (cases[row]["all_tasks_mib"]["median"] for row in ("one_process", ROWS[-1]))
    assert cluster > 2 * alone
