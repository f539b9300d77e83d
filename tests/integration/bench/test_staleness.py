"""`tfps bench staleness` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.bench.command import is_spread, run_benchmark


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_tunes_and_compares(tmp_path: Path) -> None:
    content, printed = run_benchmark("staleness", output=tmp_path, timeout_s=570)
    assert [case["optimizer"] for case in content["cases"]] == ["sgd", "sgd_inverse"]
    trainings = 2 + 2  # two learning rates, two seeds
    for case in content["cases"]:
        assert case["base"] == "sgd"
        assert str(case["learning_rate"]) in case["validation_accuracy"]
        assert len(case["validation_accuracy"]) == 2
        assert set(case["test_accuracy_of_seed"]) == {"1", "2"}
        assert is_spread(case["test_accuracy"])
        gradients = sum(case["staleness_updates"].values())
        assert gradients == trainings * content["settings"]["updates"]
        # With four workers most gradients lack about three updates.
        assert 1 < case["mean_staleness_updates"] < 6
    plain, discounted = content["cases"]
    assert plain["minus_plain"] is None
    assert discounted["minus_plain"]["low"] <= discounted["minus_plain"]["high"]
    assert "plain SGD with a learning rate of its own" in " ".join(printed.split())
