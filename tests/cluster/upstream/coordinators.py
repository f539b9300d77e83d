"""The three ways in which TensorFlow runs its coordinator's tests: plain, short queue, delayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tfps
from tests.cluster.upstream.conftest import resolver_of
from tests.cluster.upstream.tensorflow_names import cluster_coordinator
from tfps.launch import LocalCluster

WAYS = ("plain", "short queue", "delayed start")


@contextmanager
def coordinator_of(
    cluster: Callable[..., LocalCluster], way: str, partitioner: Any = None
) -> Iterator[tfps.ClusterCoordinator]:
    """A coordinator of two workers and two servers, made in one of the ways."""
    resolver = resolver_of(cluster(workers=2, ps=2))
    with pytest.MonkeyPatch.context() as patch:
        if way == "short queue":
            patch.setattr(cluster_coordinator, "_CLOSURE_QUEUE_MAX_SIZE", 2)
        if way == "delayed start":
            patch.setenv("TF_COORDINATOR_SCHEDULE_START_DELAY", "1")
            patch.setenv("TF_COORDINATOR_SCHEDULE_START_DELAY_MAX", "2")
        strategy = tfps.ParameterServerStrategy(resolver, partitioner)
        yield tfps.ClusterCoordinator(strategy)
    strategy.close()
