"""The process that announces the end of a job, as far as this needs no server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tfps.cluster import ClusterSpec, announce_finished, announcement, record_move

CODE = """
import os, sys
from tfps.cluster import ClusterSpec, announcement
announcement.announce_finished = lambda spec, status: print('told', status)
spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
announcement.announce_at_exit(spec)
announcement.announce_at_exit(spec)
if sys.argv[1] == 'fork' and os.fork() == 0:
    sys.exit(3)
if sys.argv[1] == 'fail':
    raise ValueError
"""


@pytest.mark.parametrize(
    ("mode", "supervised", "expected"),
    [("end", "", "told 0\n"), ("fail", "", "told 1\n"), ("end", "1", ""), ("fork", "", "told 0\n")],
)
def test_announce_at_exit(
    mode: str, supervised: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFPS_SUPERVISED", supervised)
    result = subprocess.run(
        [sys.executable, "-c", CODE, mode], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout == expected, result.stderr


def test_a_task_that_has_moved_is_told_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(announcement, "connection_problem", lambda address, **_: None)
    monkeypatch.setattr(
        announcement, "report_end_to_task", lambda task, status: reported.append(task[2])
    )
    spec = ClusterSpec(jobs={"chief": ("moved:1",), "worker": ("w:1",), "ps": ("p:1",)})
    record_move(spec, spec.with_address("ps", 0, "q:1"))
    assert announce_finished(spec.for_task("chief", 0), 0) == ["worker 0", "ps 0"]
    assert reported == ["w:1", "q:1"]
