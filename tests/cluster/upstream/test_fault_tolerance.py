"""TensorFlow's `fault_tolerance_test_base`, all of it, in processes of its own."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.harness.command import run_command

SUITE = Path(__file__).with_name("fault_tolerance_suite.py")
CLASSES = ("MultiWorkerFaultToleranceTest", "SingleWorkerFaultToleranceTest")
# They look for threads of coordinators, of which other tests leave some that wait for lost tasks.
ALONE = ("testClusterCoordinatorDestroyed", "testPSPreemptionErrorType")
# They skip themselves where there is one worker.
FOR_TWO_WORKERS = ("testTwoWorkersPreempted", "testAsyncWaitIsNoOp")
DEADLINE_S = 900.0


def _names() -> list[str]:
    found = importlib.util.find_spec("tensorflow")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "python" / "distribute" / "coordinator"
    source = (folder / "fault_tolerance_test_base.py").read_text()
    return sorted(re.findall(r"^  def (test\w+)\(self\)", source, re.MULTILINE))  # unittest's order


def test_the_suite_is_the_known_one() -> None:
    names = _names()
    assert len(names) == len(set(names)) == 20
    assert {*ALONE, *FOR_TWO_WORKERS} < set(names)


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 30)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("group", [*ALONE, "all others"])
def test_the_suite(group: str, kind: str) -> None:
    names = [name for name in _names() if name not in ALONE] if group == "all others" else [group]
    tests = [f"{SUITE}::{kind}::{name}" for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=200", "--tb=short", *tests]
    # Whatever options this pytest was given: they would change the summary.
    result = run_command(command, deadline_s=DEADLINE_S, environment={"PYTEST_ADDOPTS": None})
    skipped = [name for name in names if name in FOR_TWO_WORKERS and kind.startswith("Single")]
    expected = f"{len(names) - len(skipped)} passed"
    expected += f", {len(skipped)} skipped" if skipped else ""
    summary = re.compile(rf"^{expected}(, \d+ warnings?)? in ", re.MULTILINE)
    assert summary.search(result.stdout), result.stdout
    assert result.returncode == 0, result.stdout
