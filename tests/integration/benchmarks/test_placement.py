"""`benchmarks placement` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.model_shapes import MODELS
from benchmarks.placement import WAYS
from tests.integration.benchmarks.command import run_benchmark


@pytest.mark.timeout(120)
def test_quick_places_every_model_in_every_way(tmp_path: Path) -> None:
    content, printed = run_benchmark("placement", output=tmp_path, timeout_s=110)
    *cases, planning = content["cases"]
    assert [(case["model"], case["servers"], case["way"]) for case in cases] == [
        (model, servers, way) for model in MODELS for servers in (1, 4) for way in WAYS
    ]
    assert planning["planning_s"]["median"] > 0
    assert "seconds to plan 10,000 variables" in " ".join(printed.split())
