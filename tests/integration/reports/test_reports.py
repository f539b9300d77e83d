"""The programs that users reported give the results of one process."""

from __future__ import annotations

import sys

import pytest

from tests.harness.command import run_command
from tests.harness.leaks import assert_no_leaks
from tests.integration.reports.__main__ import NAMES

pytestmark = [pytest.mark.timeout(1560), pytest.mark.slow]


@pytest.mark.parametrize("name", NAMES)
def test_report(name: str) -> None:
    command = [sys.executable, "-m", "tests.integration.reports", name]
    with assert_no_leaks():
        result = run_command(command, deadline_s=1500, environment={"TF_CONFIG": None})
    assert result.returncode == 0, result.stdout + result.stderr
