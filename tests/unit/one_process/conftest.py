"""One cluster of two workers and two servers within this process, for all of these tests."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tfps
from tests.unit.graphs import graphs_as_traced, graphs_left_alone_by_the_collector
from tests.unit.one_process.jobs import FitJob, FunctionJob, Jobs
from tfps.testing import InProcessCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[InProcessCluster]:
    with InProcessCluster(workers=2, ps=2) as cluster:
        yield cluster


@pytest.fixture(scope="package", autouse=True)
def _graphs_as_traced() -> Iterator[None]:
    with graphs_as_traced(), graphs_left_alone_by_the_collector():
        yield


@pytest.fixture(scope="module", autouse=True)
def _earlier_jobs_left_alone_by_the_collector() -> None:
    gc.freeze()


@pytest.fixture(scope="package")
def fit_jobs(cluster: InProcessCluster) -> Iterator[Jobs[FitJob]]:
    jobs = Jobs(FitJob, cluster)
    yield jobs
    jobs.close()


@pytest.fixture(scope="package")
def function_jobs(cluster: InProcessCluster) -> Iterator[Jobs[FunctionJob]]:
    jobs = Jobs(FunctionJob, cluster)
    yield jobs
    jobs.close()


@pytest.fixture
def make_strategy(
    cluster: InProcessCluster,
) -> Iterator[Callable[..., tfps.ParameterServerStrategy]]:
    """A function that makes a strategy, which is closed after the test."""
    made: list[tfps.ParameterServerStrategy] = []

    def make(consistency: Any = None, **options: Any) -> tfps.ParameterServerStrategy:
        made.append(
            tfps.ParameterServerStrategy(
                cluster.cluster_resolver, consistency=consistency, **options
            )
        )
        return made[-1]

    yield make
    for strategy in made:
        strategy.close()
