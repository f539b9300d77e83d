"""A strategy on two workers and a model in it; shared, since every new model is traced anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import keras
import pytest

import tfps
from tests.cluster.counting import Visits, cross_entropy
from tfps.launch import LocalCluster

EXAMPLES = 100


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    yield strategy
    strategy.close()


@pytest.fixture(scope="module")
def model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    """Three classes from four features; counts the visits of each of the first 100 examples."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.1), cross_entropy, metrics=[Visits(EXAMPLES)])
    return model
