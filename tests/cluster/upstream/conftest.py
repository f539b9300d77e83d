"""Strategies on clusters whose resolver lists no chief, as TensorFlow's own tests make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

import tfps
from tfps.launch import LocalCluster

MakeStrategy: TypeAlias = Callable[..., tfps.ParameterServerStrategy]


def resolver_of(cluster: LocalCluster) -> tf.distribute.cluster_resolver.SimpleClusterResolver:
    """Return a resolver of the workers and parameter servers alone."""
    jobs = {name: list(cluster.spec.jobs[name]) for name in ("worker", "ps")}
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(jobs), rpc_layer="grpc"
    )


@pytest.fixture
def make_strategy(cluster: Callable[..., LocalCluster]) -> Iterator[MakeStrategy]:
    """Return a function that makes a new strategy on the module's cluster of a size."""
    made = []

    def make(partitioner: Any = None, *, workers: int = 1, ps: int = 2) -> Any:
        resolver = resolver_of(cluster(workers=workers, ps=ps))
        made.append(tfps.ParameterServerStrategy(resolver, partitioner))
        return made[-1]

    yield make
    for strategy in made:
        strategy.close()
