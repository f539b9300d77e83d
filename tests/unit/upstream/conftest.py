"""Strategies in one process, for what TensorFlow's own tests ask of the chief alone.

What they ask of workers and of the network is in ``tests/cluster/upstream``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

import tfps
from tests.unit.graphs import graphs_as_traced
from tfps.testing import InProcessCluster

MakeStrategy: TypeAlias = Callable[..., tfps.ParameterServerStrategy]


@pytest.fixture(scope="package", autouse=True)
def _graphs_as_traced() -> Iterator[None]:
    with graphs_as_traced():
        yield


@pytest.fixture(scope="package")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster(workers=1, ps=2) as cluster:
        yield cluster


@pytest.fixture
def make_strategy(cluster: InProcessCluster) -> Iterator[MakeStrategy]:
    """Return a function that makes a new strategy on a worker and two servers."""
    made: list[tfps.ParameterServerStrategy] = []

    def make(partitioner: Any = None) -> tfps.ParameterServerStrategy:
        made.append(tfps.ParameterServerStrategy(cluster.cluster_resolver, partitioner))
        return made[-1]

    yield make
    for strategy in made:
        strategy.close()
