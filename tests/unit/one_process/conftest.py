"""One cluster of two workers and two servers within this process, for all of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tfps
from tfps.testing import OneProcess


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneProcess]:
    with OneProcess(workers=2, ps=2) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def graphs_as_traced() -> Iterator[None]:
    """A third of the time would go into optimizing graphs that run a few times."""
    option = "disable_meta_optimizer"
    tf.config.optimizer.set_experimental_options({option: True})
    yield
    tf.config.optimizer.set_experimental_options({option: False})


@pytest.fixture
def make_strategy(cluster: OneProcess) -> Iterator[Callable[..., tfps.ParameterServerStrategy]]:
    """What makes a strategy, which is closed after the test."""
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
