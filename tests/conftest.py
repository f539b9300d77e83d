"""Order and marks: unit tests first, then those on a cluster, then commands as processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# pytest-timeout ends what hangs; a busy machine makes single examples slow.
settings.register_profile("tfps", deadline=None)
settings.load_profile("tfps")

TESTS = Path(__file__).parent
# Quick ones first: a mistake in a decision shows before a cluster starts.
LEVELS = ("unit", "cluster", "integration")


def _level(item: pytest.Item) -> str:
    level = item.path.relative_to(TESTS).parts[0]
    if level not in LEVELS:
        raise pytest.UsageError(f"{item.path}: tests live below tests/{{{','.join(LEVELS)}}}/.")
    return level


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(_level(item))
    items.sort(key=lambda item: LEVELS.index(_level(item)))
