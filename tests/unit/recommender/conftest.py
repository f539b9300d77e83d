"""The modules of the shipped recommender."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tfps.config import bundle


@pytest.fixture(scope="session")
def module() -> Callable[[str], ModuleType]:
    return bundle.find_example("recommender").module
