"""`EmbeddingCollection` on a cluster: features of every form, an optimizer for each table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest

from tests.unit.numbers.collections_model import dataset, recommender
from tests.unit.numbers.comparison import Comparison
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


def _use(model: keras.Model) -> dict[str, Any]:
    history: dict[str, Any] = model.fit(dataset(), epochs=2, shuffle=False, verbose=0).history
    return history


# Every optimizer, on one to three servers, is in tests/unit/numbers/shards/test_collection.py.
@pytest.mark.conformance
def test_over_each_carrier(cluster: Callable[..., LocalCluster], carrier: str) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        Comparison(strategy).run(lambda: recommender(EXACT["adagrad"]), _use)
        assert strategy.stats().fallback_steps == 0
