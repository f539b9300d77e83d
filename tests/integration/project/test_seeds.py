"""The seed that the property tests get: `make test` says the same of the same code each time."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest


def _seeds(root: Path, target: str, *settings: str) -> set[str]:
    """The seeds in the commands that a target would run."""
    if not (root / "Makefile").exists():
        pytest.skip("there is no Makefile: this is no checkout")
    shown = subprocess.run(
        ["make", "--dry-run", target, *settings],
        cwd=root,
        # A make above this one, such as that of `make test SEED=...`, passes its settings on.
        env={
            name: value for name, value in os.environ.items() if name not in ("SEED", "MAKEFLAGS")
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    seeds = set(re.findall(r"--hypothesis-seed=(\S+)", shown))
    if target == "test-all":
        assert f"SEED={min(seeds)} repeats them" in shown
    return seeds


def test_the_quick_tests_have_a_fixed_seed(root: Path) -> None:
    assert _seeds(root, "test") == {"0"}


def test_all_tests_draw_one_and_print_it(root: Path) -> None:
    (seed,) = _seeds(root, "test-all")
    assert int(seed) > 0


@pytest.mark.parametrize("target", ["test", "test-all"])
def test_a_run_can_be_repeated(root: Path, target: str) -> None:
    assert _seeds(root, target, "SEED=7") == {"7"}
