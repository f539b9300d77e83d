"""A strategy on two workers and a model in it that counts the visits of each example."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import keras
import pytest

import tfps
from tests.cluster.counting import Visits, cross_entropy
from tests.cluster.input.numbered_examples import EXAMPLES
from tfps.launch import LocalCluster


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., LocalCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(cluster(workers=2, ps=1).cluster_resolver)
    yield strategy
    strategy.close()


@pytest.fixture(scope="module")
def model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    """Three classes from four features."""
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.1), cross_entropy, metrics=[Visits(EXAMPLES)])
    return model


@pytest.fixture
def visits(model: keras.Model) -> Callable[[], list[int]]:
    """How often each example was seen in the last epoch."""

    def count() -> list[int]:
        metrics = [m for outer in model.metrics for m in getattr(outer, "metrics", [outer])]
        (found,) = (metric for metric in metrics if isinstance(metric, Visits))
        return found.counts()

    return count
