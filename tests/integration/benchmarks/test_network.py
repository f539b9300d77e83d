"""`benchmarks network` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.benchmarks.command import is_spread, run_benchmark

pytestmark = pytest.mark.timeout(500)


@pytest.mark.slow
def test_quick_counts_what_links_carry(tmp_path: Path) -> None:
    content, _ = run_benchmark("network", output=tmp_path, timeout_s=450)
    of_steps = [case for case in content["cases"] if case["part"] == "steps"]
    cases = {(case["model"], case["way"]): case for case in of_steps}
    assert list(cases) == [
        ("mlp", "whole"), ("mlp", "quantize_8"), ("fine_tuned", "everything"),
        ("fine_tuned", "changes"),
    ]  # fmt: skip
    for case in cases.values():
        assert is_spread(case["steps_per_s"], lowest=1e-6)
        assert case["details"] == {"fallback_steps": 0, "carriers": ["direct", "direct"]}
        if content["links"] == "namespaces":
            assert case["accounting"] == pytest.approx(1, abs=0.02)
    mlp, coded = cases["mlp", "whole"], cases["mlp", "quantize_8"]
    assert mlp["down_bytes_per_step"] == pytest.approx(407_080, rel=0.02)
    assert coded["up_bytes_per_step"] == pytest.approx(mlp["up_bytes_per_step"] / 4, rel=0.05)
    assert coded["down_bytes_per_step"] == pytest.approx(mlp["down_bytes_per_step"])
    everything, changes = (cases["fine_tuned", way] for way in ("everything", "changes"))
    assert changes["up_bytes_per_step"] == pytest.approx(everything["up_bytes_per_step"])
    assert changes["down_bytes_per_step"] < 0.11 * everything["down_bytes_per_step"]
    trained = {case["way"]: case for case in content["cases"] if case["part"] == "accuracy"}
    assert list(trained) == ["whole", "quantize_8"]
    assert set(trained["whole"]["final_accuracy"]) == {"1", "2"}
    assert trained["quantize_8"]["accuracy_gained"] is not None
    moved = {way: case["moved_bytes"]["median"] for way, case in trained.items()}
    assert 0.5 < moved["quantize_8"] / moved["whole"] < 0.75
