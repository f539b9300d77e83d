"""`tfps` as a user types it, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import keras
import pytest
from click.testing import CliRunner

from tests.harness.command import run_command
from tfps.cli import main

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


@pytest.fixture
def tfps_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command within this process, which has TensorFlow; its lines are not filtered.

    For what ends before anything starts; one test of each command is about a process of its own.
    """

    def run(*arguments: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(tmp_path)
        keras.utils.clear_session()  # a model's layers are numbered from the first one on
        with (
            mock.patch("tfps.launch.noise.install_noise_filter"),
            mock.patch("tfps.launch.exit.end_process", sys.exit),
        ):
            given = {**ALONE, **environment}
            result = CliRunner().invoke(main, arguments, env=given, catch_exceptions=False)
        return subprocess.CompletedProcess(
            arguments, result.exit_code, result.stdout, result.stderr
        )

    return run
