"""Plain servers in the chief's own process are taken for what they are, and work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.strategy.one_process import STEPS
from tests.harness.command import run_command

ROOT = Path(__file__).parents[3]
DEADLINE_S = 200.0


@pytest.mark.rare
@pytest.mark.timeout(DEADLINE_S + 30)
def test_all_in_one_process() -> None:
    result = run_command(
        [sys.executable, "-m", "tests.cluster.strategy.one_process"],
        deadline_s=DEADLINE_S,
        environment={"TFPS_TRANSPORT": None},  # "auto" is what is tested
        folder=ROOT,
    )
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("found ")]
    expected = {"total": STEPS, "weights": [STEPS, STEPS], "transports": ["grpc", "grpc"]}
    assert [json.loads(line.removeprefix("found ")) for line in lines] == [expected] * 2
