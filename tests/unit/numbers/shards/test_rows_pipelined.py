"""`Asynchronous(pipeline_steps=1)`: rows lack one update, as all other parameters do."""

from __future__ import annotations

from collections.abc import Callable

import keras
import pytest

import tfps
from tests.unit.numbers.delayed_tables import (
    assert_a_collection_lacks_one_update,
    assert_rows_lack_one_update,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import Make
from tfps.optimizers import SparseUpdates
from tfps.runtime.program import tables
from tfps.testing import InProcessCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]

MODE = tfps.Asynchronous(pipeline_steps=1)
OPTIMIZERS: dict[str, Make] = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "rows": lambda: SparseUpdates(keras.optimizers.Adagrad(0.1)),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_gradient_lacks_one_update(
    optimizer: str, cluster: Callable[..., InProcessCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LEAST_TABLE_BYTES", 1)
    running = cluster(workers=1, ps=2)
    with strategy_with(running, PARTITIONERS["shuffle"], consistency=MODE) as strategy:
        assert_rows_lack_one_update(strategy, OPTIMIZERS[optimizer])


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_collections_lack_one_update_too(
    optimizer: str,
    servers: int,
    cluster: Callable[..., InProcessCluster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "LEAST_TABLE_BYTES", 1)
    running = cluster(workers=1, ps=servers)
    with strategy_with(running, PARTITIONERS["shuffle"], consistency=MODE) as strategy:
        assert_a_collection_lacks_one_update(strategy, OPTIMIZERS[optimizer])
