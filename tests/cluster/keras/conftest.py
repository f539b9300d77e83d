"""One worker and two servers, so that numbers are Keras's own and variables are spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tfps
from tests.cluster.keras.comparison import Comparison
from tfps.launch import LocalCluster


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=1, ps=2).cluster_resolver)
    yield strategy
    strategy.close()


@pytest.fixture(scope="module")
def comparison(strategy: tfps.ParameterServerStrategy) -> Comparison:
    """Runs a program on the cluster and on one machine."""
    return Comparison(strategy)
