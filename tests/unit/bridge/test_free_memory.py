"""The free memory of a task's machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfps.bridge import free_memory


def test_this_machine_has_some_left() -> None:
    found = free_memory.read_free_memory_bytes("/device:CPU:0")
    assert found is not None
    assert found > 1 << 20


def test_a_system_without_that_account_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(free_memory, "MEMINFO", str(tmp_path / "none"))
    assert free_memory.read_free_memory_bytes("/device:CPU:0") is None
