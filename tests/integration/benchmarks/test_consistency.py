"""`benchmarks consistency` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.modes import (
    BOUND_RANGE_STEPS,
    BOUND_STEPS,
    BOUNDED,
    DYNAMIC,
    FREE_MODES,
    LOCAL_MODES,
    MODES,
)
from tests.integration.benchmarks.command import is_spread, run_benchmark

LARGEST_GAP_STEPS = {BOUNDED: BOUND_STEPS, DYNAMIC: BOUND_RANGE_STEPS[1]}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_measures_every_mode_with_every_delay(tmp_path: Path) -> None:
    content, printed = run_benchmark("consistency", output=tmp_path, timeout_s=570)
    delayed = ("transient", "constant", "even")
    assert [(case["scenario"], case["mode"]) for case in content["cases"]] == [
        *((scenario, mode) for scenario in delayed for mode in MODES),
        *(("free", mode) for mode in FREE_MODES),
        *(("counted", mode) for mode in (*FREE_MODES, *LOCAL_MODES)),
    ]
    for case in content["cases"]:
        assert is_spread(case["updates_per_s"])
        assert case["details"] == {"fallback_steps": 0, "carriers": ["direct"]}
        assert case["curves"]["1"][0][0] < case["curves"]["1"][-1][0]
        assert 0 <= case["final_accuracy"]["1"] <= 1
        if case["mode"] in LARGEST_GAP_STEPS:
            assert case["largest_gap_steps"] <= LARGEST_GAP_STEPS[case["mode"]]
    counted = {c["mode"]: c for c in content["cases"] if c["scenario"] == "counted"}
    traffic = {mode: case["bytes_per_example"]["median"] for mode, case in counted.items()}
    assert traffic["local_1"] == pytest.approx(traffic["asynchronous"], rel=0.1)
    assert traffic["local_4"] < 0.3 * traffic["local_1"]
    assert traffic["local_64"] < traffic["local_16"] < 0.4 * traffic["local_4"]
    # Nobody's steps are shorter than stated.
    for case in content["cases"]:
        if case["scenario"] == "constant":
            seconds = case["samples"][0]["seconds"]
            # Those of the round before are counted when its push is known to be done.
            at_once = MODES[case["mode"]].arguments.get("adaptive_batches", 1)
            assert case["worker_steps"]["1"][0] <= seconds / 0.25 + 2 * at_once
    assert "largest gap, steps" in " ".join(printed.split())
