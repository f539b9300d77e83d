"""A model that one task may not hold trains on three servers, and on one does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tests.harness.leaks import assert_no_leaks
from tests.integration.project import pages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SCRIPT = Path(__file__).parents[3] / "examples/larger_than_one_server.py"
(LIMIT_KIB,) = re.findall(r"ulimit -d (\d+)", SCRIPT.read_text())


def _run(servers: int) -> subprocess.CompletedProcess[str]:
    """Under a limit that tasks inherit."""
    command = f'ulimit -d {LIMIT_KIB}; exec "$@"'
    tfps = [sys.executable, "-m", "tfps", "run", "--workers", "1", "--ps", str(servers)]
    with assert_no_leaks():
        return run_command(
            ["sh", "-c", command, "sh", *tfps, "--restarts", "0", SCRIPT],
            deadline_s=350,
            environment={"TF_CONFIG": None},
        )


def test_three_servers_hold_it() -> None:
    result = _run(3)
    assert result.returncode == 0, result.stdout + result.stderr
    printed = re.sub(r"^\[chief\] ", "", result.stdout, flags=re.M)
    for sample in pages.samples("larger_than_one_server"):
        assert pages.not_shown(sample.text, printed) == [], result.stdout


def test_one_server_does_not() -> None:
    result = _run(1)
    assert result.returncode != 0
    assert re.search("OOM when allocating tensor|bad_alloc", result.stdout + result.stderr), result
