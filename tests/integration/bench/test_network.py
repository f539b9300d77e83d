"""`tfps bench network` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.bench.command import is_spread, run_benchmark

pytestmark = pytest.mark.timeout(500)


@pytest.mark.slow
def test_quick_counts_what_links_carry(tmp_path: Path) -> None:
    content, _ = run_benchmark("network", output=tmp_path, timeout_s=450)
    cases = {(case["model"], case["way"]): case for case in content["cases"]}
    assert list(cases) == [
        ("mlp", "whole"), ("fine_tuned", "everything"), ("fine_tuned", "changes"),
    ]  # fmt: skip
    for case in cases.values():
        assert is_spread(case["steps_per_s"], lowest=1e-6)
        assert case["details"] == {"fallback_steps": 0, "carriers": ["direct", "direct"]}
        if content["links"] == "namespaces":
            assert case["accounting"] > 0.9  # TensorFlow's own messages are the rest
    mlp = cases["mlp", "whole"]
    assert mlp["down_bytes_per_step"] == pytest.approx(407_080, rel=0.02)
    everything, changes = (cases["fine_tuned", way] for way in ("everything", "changes"))
    assert changes["up_bytes_per_step"] == pytest.approx(everything["up_bytes_per_step"])
    assert changes["down_bytes_per_step"] < 0.11 * everything["down_bytes_per_step"]
