"""The timelines of the modes: what they show holds, and each is on the page."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.project import pages
from tests.integration.project.pages import ROOT

SCRIPT = ROOT / "docs/guide/timelines.py"


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    return dict(runpy.run_path(str(SCRIPT))["timelines"]())


def _waits(timeline: Any, worker: int) -> float:
    return sum(
        end - begin for who, begin, end, kind in timeline.bars if (who, kind) == (worker, "wait")
    )


@pytest.mark.slow
def test_each_picture_is_on_the_page(drawn: dict[str, Any], tmp_path: Path) -> None:
    page = pages.text_of("docs/guide/modes.md")
    assert re.findall(r"\(pictures/(\w+)\.png\)", page) == list(drawn)
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True, timeout=120)
    names = {f"{name}.png" for name in drawn}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert {path.name for path in (SCRIPT.parent / "pictures").iterdir()} == names


@pytest.mark.parametrize(
    ("mode", "waiting"),
    [
        ("asynchronous", []),
        ("bounded_staleness", [0, 1]),
        ("synchronous", [0, 1]),
        ("backup_workers", [0]),
        ("local_steps", []),
        ("local_steps_synchronous", [0, 1]),
    ],
)
def test_who_waits(drawn: dict[str, Any], mode: str, waiting: list[int]) -> None:
    assert [worker for worker in range(3) if _waits(drawn[mode], worker)] == waiting


def test_what_a_mode_is_for_shows(drawn: dict[str, Any]) -> None:
    updates = {name: len(timeline.updates) for name, timeline in drawn.items()}
    assert updates["asynchronous"] > updates["bounded_staleness"]
    assert updates["backup_workers"] > 1.5 * updates["synchronous"]
    assert len(drawn["backup_workers"].dropped) > 3
    assert drawn["synchronous"].dropped == []
