"""One worker and two servers, so that numbers are Keras's own."""

from __future__ import annotations

from typing import Any

import pytest

import tfps
from tests.unit.numbers.comparison import Comparison
from tests.unit.numbers.partitioned import PARTITIONERS


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    return {"workers": 1, "ps": 2}


@pytest.fixture(scope="module")
def strategy_options() -> dict[str, Any]:
    return {"variable_partitioner": PARTITIONERS["shuffle"]}


@pytest.fixture(scope="module")
def comparison(strategy: tfps.ParameterServerStrategy) -> Comparison:
    """Runs a program on the cluster and on one machine."""
    return Comparison(strategy)
