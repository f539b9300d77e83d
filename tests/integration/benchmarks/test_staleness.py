"""`benchmarks staleness` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_tunes_and_compares(tmp_path: Path) -> None:
    content, printed = run_benchmark("staleness", output=tmp_path, timeout_s=570)
    assert [(case["scenario"], case["optimizer"]) for case in content["cases"]] == [
        ("synchronous", "sgd"),
        ("forced", "sgd"),
        ("forced", "sgd_inverse"),
        ("slow", "sgd"),
        ("slow", "sgd_inverse"),
    ]
    trainings = 2 + 2  # two learning rates, two seeds
    updates, sharers = (content["settings"][name] for name in ("updates", "sharers"))
    for case in content["cases"]:
        assert case["base"] == "sgd"
        assert str(case["learning_rate"]) in case["validation_accuracy"]
        assert len(case["validation_accuracy"]) == 2
        assert set(case["test_accuracy_of_seed"]) == {"1", "2"}
        assert is_spread(case["test_accuracy"])
        is_synchronous = case["scenario"] == "synchronous"
        gradients = sum(case["staleness_updates"].values())
        assert gradients == trainings * updates * (sharers if is_synchronous else 1)
    synchronous, forced, _, slow, discounted = content["cases"]
    assert synchronous["staleness_updates"] == {"0": trainings * updates * sharers}
    assert synchronous["minus_synchronous"] is None
    # Two beginnings and two ends of a training apart, all lack three updates.
    assert forced["staleness_updates"]["3"] >= trainings * (updates - 4 * 4)
    assert max(map(int, slow["staleness_updates"])) > 6
    assert discounted["minus_plain"]["low"] <= discounted["minus_plain"]["high"]
    assert discounted["minus_synchronous"]["low"] <= discounted["minus_synchronous"]["high"]
    assert "plain SGD with a learning rate of its own" in " ".join(printed.split())
