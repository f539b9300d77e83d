"""`EmbeddingCollection` on a cluster: features of every form, an optimizer for each table."""

from __future__ import annotations

from typing import Any

import keras
import pytest

from tests.unit.numbers.collections_model import dataset, recommender
from tests.unit.numbers.comparison import Comparison
from tfps.optimizers import ByTable

pytestmark = pytest.mark.timeout(240)


def test_numbers_of_one_process(comparison: Comparison) -> None:
    def of_tables() -> Any:
        return ByTable({"users": keras.optimizers.Adagrad(0.1), "items": "sgd"}, "sgd")

    def use(model: keras.Model) -> dict[str, Any]:
        history: dict[str, Any] = model.fit(dataset(), epochs=2, shuffle=False, verbose=0).history
        return history

    comparison.run(lambda: recommender(of_tables), use)
    assert comparison.strategy.stats().fallback_steps == 0
