"""A strategy whose only worker has two devices: logical ones of its CPU."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    return {"workers": 1, "ps": 2, "logical_cpus": 2}
