"""`benchmarks throughput` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
def test_quick_writes_every_row_and_the_comparison(tmp_path: Path) -> None:
    pytest.importorskip("tf_keras", reason="TensorFlow's own strategy needs tf_keras: tfps[bench]")
    only = ("--model", "mlp", "--workers", "1", "--epoch-seconds", "0.1")
    content, printed = run_benchmark("throughput", *only, output=tmp_path, timeout_s=270)
    measured = {(case["row"], case["steps_per_execution"]) for case in content["cases"]}
    rows = ("single_fit", "stock_fit", "stock_loop", "tfps_fit", "tfps_loop")
    longest = {(row, 50) for row in ("tfps_fit_grpc", "tfps_fit_pipelined")}
    assert measured == {(row, length) for row in rows for length in (1, 50)} | longest
    for case in content["cases"]:
        assert (case["model"], case["workers"], case["ps"], case["batch_size"]) == ("mlp", 1, 1, 64)
        for quantity in ("steps_per_s", "cpu_ms_per_step"):
            assert is_spread(case[quantity], lowest=1e-6)
        assert case["samples"][0]["steps"] >= 100
        assert is_spread(case["seconds_to_first_step"], lowest=0.01)
        roles = ["chief"] if case["row"] == "single_fit" else ["chief", "worker", "ps"]
        assert list(case["memory_mib"]) == roles
        assert all(is_spread(mib, lowest=100) for mib in case["memory_mib"].values())
        if case["row"].startswith("tfps"):
            carrier = "grpc" if case["row"] == "tfps_fit_grpc" else "direct"
            assert case["details"] == {"fallback_steps": 0, "carriers": [carrier]}

    measured_bars = [bar for bar in content["bars"] if bar["name"].startswith("MLP 784-128-10, 1")]
    assert all(bar["value"] > 0 for bar in measured_bars)
    assert [bar["aim"] for bar in measured_bars] == [2.5, 4.0, 0.55, 1.7, 1.5, 1.5, 3.0]
    others = [bar for bar in content["bars"] if bar not in measured_bars]
    assert others
    assert all((bar["value"], bar["holds"]) == (None, None) for bar in others)

    assert "tfps fit over stock fit" in " ".join(printed.split())
