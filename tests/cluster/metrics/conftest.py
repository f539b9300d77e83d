"""A strategy on two workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tfps
from tfps.launch import LocalCluster


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    yield strategy
    strategy.close()
