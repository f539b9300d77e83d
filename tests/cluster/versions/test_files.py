"""Files that a job of one row of versions writes are read by a job of another row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(700)


def _run(python: str, action: str, folder: Path) -> None:
    ended = subprocess.run(
        [python, "-m", "tests.cluster.versions.travelling_model", action, folder],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]


@pytest.mark.parametrize("direction", ["from here", "to here"])
def test_weights_and_checkpoints_travel(direction: str, other_python: str, tmp_path: Path) -> None:
    pythons = [sys.executable, other_python]
    saves, loads = pythons if direction == "from here" else reversed(pythons)
    _run(saves, "save", tmp_path)
    _run(loads, "load", tmp_path)
