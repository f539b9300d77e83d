"""One worker and two servers, so that numbers are Keras's own and variables are spread."""

from __future__ import annotations

import pytest

import tfps
from tests.cluster.keras.comparison import Comparison


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    return {"workers": 1, "ps": 2}


@pytest.fixture(scope="module")
def comparison(strategy: tfps.ParameterServerStrategy) -> Comparison:
    """Runs a program on the cluster and on one machine."""
    return Comparison(strategy)
