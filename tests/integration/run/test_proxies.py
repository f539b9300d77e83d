"""A proxy in the environment is not for the tasks of a cluster: its connections would hang."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tests.integration.run.test_scheduler import FIT

pytestmark = pytest.mark.timeout(300)
NOBODY = "http://127.0.0.1:9"


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc", "direct"])
def test_a_proxy_that_does_not_respond(transport: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FIT)
    variables = {
        "http_proxy": NOBODY,
        "no_proxy": "elsewhere.example",
        "no_grpc_proxy": None,
        "TFPS_TRANSPORT": transport,
        "TFPS_CONNECT_TIMEOUT_S": "60",
    }
    command = [sys.executable, "-m", "tfps", "run", str(script)]
    result = run_command(command, deadline_s=240, environment=variables)
    assert result.returncode == 0, result.stderr
    assert "counted 40 2" in result.stdout
