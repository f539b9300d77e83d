"""The command `tfps scheduler`: what it writes, where it listens, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tfps.cluster import lease_ports
from tfps.launch import scheduling
from tfps.launch.scheduling import run_scheduler


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # of the test's process
    monkeypatch.setenv("TFPS_CHIEF_TIMEOUT_S", "0.2")
    with lease_ports(1) as lease:
        return f"127.0.0.1:{lease.ports[0]}"


@pytest.mark.parametrize("kind", ["pipe", "disk"])
def test_an_output_that_cannot_be_written_ends_nothing(
    address: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe, Path("/dev/full").open("w", encoding="utf-8") as disk:
        monkeypatch.setattr(sys, "stdout", pipe if kind == "pipe" else disk)
        assert run_scheduler(address, workers=1, servers=1) == 75


def test_its_lines_may_have_any_character(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A peer may send half of a surrogate pair, which UTF-8 has no bytes for."""
    monkeypatch.setattr(scheduling, "count_tasks", lambda **_: "\ud800")
    with (tmp_path / "out").open("w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert run_scheduler(address, workers=1, servers=1) == 75
    assert r"1 chief, \ud800" in (tmp_path / "out").read_text()
