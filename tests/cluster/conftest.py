"""Clusters for tests, which modules lend each other."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tfps
from tests.harness.leaks import assert_no_leaks
from tests.unit.graphs import graphs_as_traced
from tfps.launch import LocalCluster
from tfps.launch.environment import common_environment
from tfps.launch.starter import make_starter
from tfps.transport.setting import TRANSPORT_VARIABLE


@pytest.fixture(scope="session", autouse=True)
def _kept_fork_server() -> Iterator[None]:
    """Let the clusters of all tests start from one process that has imported TensorFlow."""
    with assert_no_leaks(), make_starter(common_environment()):
        yield


@pytest.fixture(scope="session", autouse=True)
def _graphs_as_traced(request: pytest.FixtureRequest) -> Iterator[None]:
    """Optimize no graphs in `make test`; in `make test-all` TensorFlow optimizes them."""
    quickly = request.config.getoption("quickly")
    with graphs_as_traced() if quickly else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module")
def cluster(tfps_cluster_factory: Callable[..., LocalCluster]) -> Callable[..., LocalCluster]:
    """Return a function that starts a cluster, or hands out a waiting one of the same size.

    Tests of a module share it, so one that ends a task starts it again; the next module then gets
    another one.
    """

    def get(
        *, workers: int = 2, ps: int = 1, logical_cpus: int = 1, **options: Any
    ) -> LocalCluster:
        environment = {"TFPS_LOGICAL_CPUS": str(logical_cpus)}
        return tfps_cluster_factory(workers=workers, ps=ps, environment=environment, **options)

    return get


@pytest.fixture(scope="module")
def cluster_size() -> dict[str, int]:
    """The size of the cluster under `strategy`; a folder may override this fixture."""
    return {"workers": 2, "ps": 1}


@pytest.fixture(scope="module")
def strategy_options() -> dict[str, Any]:
    """The arguments that `strategy` is made with, beside its cluster."""
    return {}


@pytest.fixture(scope="module")
def strategy(
    cluster: Callable[..., LocalCluster],
    cluster_size: dict[str, int],
    strategy_options: dict[str, Any],
) -> Iterator[tfps.ParameterServerStrategy]:
    """Shared by a module's tests."""
    resolver = cluster(**cluster_size).cluster_resolver
    strategy = tfps.ParameterServerStrategy(resolver, **strategy_options)
    yield strategy
    strategy.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The conformance subset runs on both transports, all other tests on the default one.

    With TFPS_TRANSPORT set, everything runs on that transport.
    """
    if "carrier" not in metafunc.fixturenames:
        return
    is_conformance = metafunc.definition.get_closest_marker("conformance") is not None
    chosen = os.environ.get(TRANSPORT_VARIABLE)
    carriers = [chosen] if chosen else ["auto", "grpc"] if is_conformance else ["auto"]
    metafunc.parametrize("carrier", carriers, indirect=True, scope="module")


@pytest.fixture(scope="module")
def carrier(request: pytest.FixtureRequest) -> Iterator[str]:
    """The transport that ``transport="auto"`` means in this test, for strategies made after it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "auto":  # as without it, for a cluster that goes to other modules
            patch.delenv(TRANSPORT_VARIABLE, raising=False)
        else:
            patch.setenv(TRANSPORT_VARIABLE, request.param)
        yield request.param


@pytest.fixture(autouse=True)
def _coordinator_messages(caplog: pytest.LogCaptureFixture) -> None:
    """Keep the messages of TensorFlow's coordinator in a failed test's report."""
    caplog.set_level(logging.INFO, logger="tensorflow")
