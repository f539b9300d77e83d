"""Every variable is divided by shuffled rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.numbers.partitioned import PARTITIONERS


@pytest.fixture(scope="module")
def strategy_options() -> dict[str, Any]:
    return {"variable_partitioner": PARTITIONERS["shuffle"]}


@pytest.fixture(scope="module")
def servers() -> int:
    """Shards lie on both."""
    return 2
