"""A model on two workers that counts the visits of each example."""

from __future__ import annotations

from collections.abc import Callable

import keras
import pytest

import tfps
from tests.cluster.counting import Visits, visit_counter
from tests.cluster.input.numbered_examples import EXAMPLES


@pytest.fixture(scope="module")
def model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    return visit_counter(strategy, examples=EXAMPLES)


@pytest.fixture
def visits(model: keras.Model) -> Callable[[], list[int]]:
    """How often each example was seen in the last epoch."""

    def count() -> list[int]:
        metrics = [m for outer in model.metrics for m in getattr(outer, "metrics", [outer])]
        (found,) = (metric for metric in metrics if isinstance(metric, Visits))
        return found.counts()

    return count
