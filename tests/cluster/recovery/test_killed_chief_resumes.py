"""SIGKILL of the chief in the middle of an epoch: the same script goes on at its step."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.cluster.recovery.resuming_job import EPOCHS, EVERY, STEPS
from tests.harness.command import Command
from tests.harness.leaks import assert_no_leaks

pytestmark = pytest.mark.timeout(280)

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_each_example_is_used_once(tmp_path: Path) -> None:
    after = STEPS + 15
    command = [sys.executable, "-m", "tests.cluster.recovery.resuming_job", str(tmp_path / "c")]
    with assert_no_leaks():
        with Command([*command, str(after)], deadline_s=120, folder=ROOT) as job:
            assert job.wait() == -signal.SIGKILL, job.describe()
        with Command([*command, "0"], deadline_s=120, folder=ROOT) as job:
            assert job.wait() == 0, job.describe()
            output = job.output
    step = (after - 1) // EVERY * EVERY - STEPS  # the callback that saves comes last
    assert f"goes on with epoch 2, after {step} of its steps" in output
    found = json.loads(output.strip().splitlines()[-1])
    assert found["counts"] == [EPOCHS] * len(found["counts"])
    assert found["epoch"] == [0, 1, 2]
    assert len(found["history"]["loss"]) == EPOCHS
