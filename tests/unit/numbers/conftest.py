"""One worker and its servers within this process, so that numbers are Keras's own.

What only compares numbers needs no process and no network; a test of each kind runs on a real
cluster too, below ``tests/cluster``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tfps
from tests.unit.graphs import graphs_as_traced, graphs_left_alone_by_the_collector
from tests.unit.numbers.comparison import Comparison
from tfps.testing import InProcessCluster

Clusters = Callable[..., InProcessCluster]


@pytest.fixture(scope="module", autouse=True)
def _graphs_as_traced() -> Iterator[None]:
    with graphs_as_traced(), graphs_left_alone_by_the_collector():
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[Clusters]:
    """Return a function that hands out the module's cluster of a size."""
    clusters: dict[tuple[int, int], InProcessCluster] = {}

    def get(*, workers: int = 2, ps: int = 1) -> InProcessCluster:
        if (workers, ps) not in clusters:
            clusters[workers, ps] = InProcessCluster(workers=workers, ps=ps)
        return clusters[workers, ps]

    yield get
    for made in clusters.values():
        made.close()


@pytest.fixture(scope="module")
def strategy_options() -> dict[str, Any]:
    """The options that `strategy` is made with; a folder may override this fixture."""
    return {"placement": "round_robin"}  # whatever other models there are


@pytest.fixture(scope="module")
def servers(pytestconfig: pytest.Config) -> int:
    """How many `strategy` has; a folder may override this fixture.

    A third of the time would go into the traces of a second one, which `make test-all` has. Tests
    whose numbers depend on it make a strategy of their own, such as test_equality.py.
    """
    return 1 if pytestconfig.getoption("quickly") else 2


@pytest.fixture(scope="module")
def strategy(
    cluster: Clusters, strategy_options: dict[str, Any], servers: int
) -> Iterator[tfps.ParameterServerStrategy]:
    """Shared by a module's tests."""
    resolver = cluster(workers=1, ps=servers).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, **strategy_options)
    yield strategy
    strategy.close()


@pytest.fixture(scope="module")
def comparison(strategy: tfps.ParameterServerStrategy) -> Comparison:
    """Runs a program under the strategy and without one."""
    return Comparison(strategy)
