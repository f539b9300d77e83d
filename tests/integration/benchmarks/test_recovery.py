"""`benchmarks recovery` from the command line to its files; numbers are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.recovery import JOB, MOMENTS, SERVER, WITH, WITHOUT, WORKER
from tests.integration.benchmarks.command import is_spread, run_benchmark


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_quick_loses_every_kind_of_task(tmp_path: Path) -> None:
    content, printed = run_benchmark("recovery", output=tmp_path, timeout_s=380)
    cases = {case["what"]: case for case in content["cases"]}
    assert list(cases) == [SERVER, JOB, WORKER, WITH, WITHOUT]
    for what in (SERVER, JOB):
        medians = [cases[what][name]["median"] for name in MOMENTS]
        assert medians == sorted(medians)
    assert is_spread(cases[WORKER]["trains_s"], lowest=0.25)
    assert all(is_spread(cases[what]["cpu_ms_per_step"]) for what in (WITH, WITHOUT))
    assert "killed worker: s until it trains again" in printed
    assert not (tmp_path / "logs/checkpoints").exists()
