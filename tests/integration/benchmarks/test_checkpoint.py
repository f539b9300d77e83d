"""`benchmarks checkpoint` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.checkpoint import WAYS
from benchmarks.saving import BESIDE, RESTORE, SAVE, TFPS
from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_quick_saves_and_restores_in_every_way(tmp_path: Path) -> None:
    content, printed = run_benchmark("checkpoint", output=tmp_path, timeout_s=220)
    found = {(case["what"], case["way"], case["ps"]) for case in content["cases"]}
    both = {(what, way, 2) for what in (SAVE, RESTORE) for way in WAYS}
    assert found == both | {(RESTORE, TFPS, ps) for ps in (1, 3)} | {(SAVE, BESIDE, 2)}
    for case in content["cases"]:
        assert case["pause_s"]["median"] >= 0
        assert is_spread(case["seconds"], lowest=1e-4)
        if case["way"] != BESIDE:
            assert case["pause_s"]["median"] <= case["seconds"]["median"]
    assert "seconds that training rests for a save" in " ".join(printed.split())
    assert not (tmp_path / "logs/checkpoints").exists()
