"""The tests of the page about tests, as a project runs them that has tfps installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.command import run_command
from tests.harness.leaks import assert_no_leaks
from tests.integration.project import pages

pytestmark = [pytest.mark.rare, pytest.mark.timeout(200)]


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    blocks = pages.runnable("pytest")
    for number, block in enumerate(blocks):
        # One file after the other: the cluster within the process needs TensorFlow's start.
        (tmp_path / f"test_page_{number}.py").write_text(block.text)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    with assert_no_leaks():
        result = run_command(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
            deadline_s=180,
            environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            folder=tmp_path,
        )
    assert f"{len(blocks)} passed" in result.stdout, result.stdout + result.stderr
    # The second ends while a killed worker's thread still waits for it.
    assert "Exception in thread" not in result.stdout + result.stderr
