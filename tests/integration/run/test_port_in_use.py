"""A task whose port is held says so in a few lines, at once, with a status that is not 0."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tests.integration.library_lines import RAW
from tfps.cluster import ClusterSpec, lease_ports

pytestmark = [pytest.mark.rare, pytest.mark.timeout(120)]

TFPS = [sys.executable, "-m", "tfps"]
SCRIPT = "import tfps\nprint('begins', flush=True)\ntfps.ParameterServerStrategy()\n"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("task_type", "command"), [("worker", "serve"), ("ps", "run"), ("chief", "run")]
)
def test_the_port_is_named(tmp_path: Path, taken: int, task_type: str, command: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with lease_ports(2) as lease:
        free = iter([f"127.0.0.1:{port}" for port in lease.ports])
    jobs = {
        kind: (f"127.0.0.1:{taken}" if kind == task_type else next(free),)
        for kind in ("chief", "worker", "ps")
    }
    result = run_command(
        [*TFPS, command, *([script] if command == "run" else [])],
        deadline_s=100,
        environment={
            "TF_CONFIG": json.dumps(ClusterSpec(jobs=jobs).tf_config(task_type, 0)),
            "TF_GRPC_REUSE_PORT": None,
        },
    )
    assert result.returncode == 1
    text = result.stderr
    assert f"{task_type} 0 cannot listen at 127.0.0.1:{taken}: port {taken} of this machine" in text
    assert f"in use by process {os.getpid()} (" in text
    assert "TF_CONFIG of every task" in text
    # Only a script has a traceback, which shows its line.
    assert ("Traceback" in text) == ("ParameterServerStrategy()" in text) == (task_type == "chief")
    assert len(text.splitlines()) <= (15 if task_type == "chief" else 2), text
    assert not RAW.search(text.replace(str(tmp_path), "")), text
