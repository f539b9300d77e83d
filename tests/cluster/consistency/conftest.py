"""A custom loop under the strategy of a module."""

from __future__ import annotations

import pytest

import tfps
from tests.cluster.consistency.custom_loop import CustomLoop


@pytest.fixture(scope="module")
def made(strategy: tfps.ParameterServerStrategy) -> CustomLoop:
    """Made once: tracing its function takes seconds."""
    return CustomLoop(strategy, "sgd")


@pytest.fixture
def loop(made: CustomLoop) -> CustomLoop:
    """The module's loop, as it was at first."""
    return made.start_again()
