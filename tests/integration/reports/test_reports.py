"""The programs that users reported give the results of one process."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.integration.reports.__main__ import NAMES
from tfps.testing import assert_no_leaks, run_command

pytestmark = [pytest.mark.timeout(1560), pytest.mark.slow]

# Reports of defects whose cause is not found, with what is wrong.
DEFECTS = {"memory_of_calls": "workers keep 1 to 3 kB of each train_on_batch"}


def _parameter(name: str) -> Any:
    reason = DEFECTS.get(name)
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", map(_parameter, NAMES))
def test_report(name: str) -> None:
    command = [sys.executable, "-m", "tests.integration.reports", name]
    with assert_no_leaks():
        result = run_command(command, deadline_s=1500, environment={"TF_CONFIG": None})
    assert result.returncode == 0, result.stdout + result.stderr
