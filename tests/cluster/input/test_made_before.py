"""Datasets that were made before the strategy connected to its cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("made_before.py")


@pytest.mark.rare
@pytest.mark.timeout(180)
def test_datasets_made_before_the_strategy() -> None:
    """In a process of its own: this one has been connected before."""
    ended = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    assert ended.stdout.split() == [
        *("plain", "generator", "numpy"),
        *("table", "function", "scheduled"),  # which are refused
        "3",  # of a function after them
    ]
