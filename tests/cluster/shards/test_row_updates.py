"""`RowUpdates` on a cluster: servers update the rows of a batch and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.numbers.comparison import LABELS, fit
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import (
    IDS,
    LAZY,
    assert_only_rows_that_came_are_updated,
    tables_model,
)
from tfps.errors import UnsupportedError
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)


# One process has both in tests/unit/numbers/shards/test_row_updates.py, and a cluster rows that
# travel in test_rows.py beside this.
@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize(("name", "optimizer"), [("hash", "adam"), (None, "scaled")])
def test_only_rows_that_came_are_updated(
    name: str | None, optimizer: str, cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    with strategy_with(cluster(workers=1, ps=2), partitioner) as strategy:
        assert_only_rows_that_came_are_updated(strategy, LAZY[optimizer])


@pytest.mark.slow
def test_with_several_devices_it_is_refused(cluster: Callable[..., LocalCluster]) -> None:
    running = cluster(workers=1, ps=2, logical_cpus=2)
    with strategy_with(running, PARTITIONERS["hash"]) as strategy:
        with strategy.scope():
            model = tables_model(LAZY["adam"])
        with pytest.raises(UnsupportedError, match="received 2 devices per worker, under"):
            fit(model, IDS, LABELS)
