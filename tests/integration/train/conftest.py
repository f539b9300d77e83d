"""`tfps` as a user types it, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tfps.testing import run_command

DEADLINE_S = 200
TFPS = (sys.executable, "-m", "tfps")
ALONE = {"TF_CONFIG": None}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tfps(tmp_path: Path) -> Run:
    def run(*arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
        return run_command(
            [*TFPS, *arguments],
            deadline_s=DEADLINE_S,
            environment={**ALONE, **environment},
            folder=tmp_path,
        )

    return run
