"""`RowUpdates` on a cluster: servers update the rows of a batch and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import (
    LAZY,
    assert_only_rows_that_came_are_updated,
)
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
