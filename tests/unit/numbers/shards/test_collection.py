"""`EmbeddingCollection` on parameter servers: the numbers of one process, rows in one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.numbers.collections_model import dataset, recommender
from tests.unit.numbers.comparison import STEPS, Comparison
from tests.unit.numbers.many_tables import JOIN, LOOK_UP, PUSH, exchanges_of
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT
from tfps.testing import OneProcess

pytestmark = pytest.mark.timeout(240)


def _fit(model: Any, *, is_weighted: bool = True) -> dict[str, Any]:
    data = dataset(is_weighted=is_weighted)
    history: dict[str, Any] = model.fit(data, epochs=2, verbose=0).history
    return history


@pytest.mark.quick("hash-adagrad-2")
@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("optimizer", EXACT)
@pytest.mark.parametrize("name", ["hash", None])
def test_numbers_of_one_process(
    name: str | None, optimizer: str, servers: int, cluster: Callable[..., OneProcess]
) -> None:
    """Every form of ids, with weights, for each optimizer that is exact by rows."""
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    with strategy_with(cluster(workers=1, ps=servers), partitioner) as strategy:
        Comparison(strategy).run(lambda: recommender(EXACT[optimizer]), _fit)
        assert strategy.stats().fallback_steps == 0


def test_one_request_to_each_server(cluster: Callable[..., OneProcess]) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["hash"]) as strategy:
        with strategy.scope():
            model = recommender(EXACT["sgd"])
        run = exchanges_of(strategy, lambda: model.fit(dataset(), verbose=0))
        assert run == [JOIN + STEPS * (LOOK_UP + PUSH)] * 2
