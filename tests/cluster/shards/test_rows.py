"""Only the rows of a batch travel of a large table; the numbers are those of one process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tfps
from tests.unit.numbers.delayed_tables import assert_rows_lack_one_update
from tests.unit.numbers.large_tables import (
    OPTIMIZERS,
    assert_rows_travel_of_a_fit,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


# Numbers alone: tests/unit/numbers/shards/test_rows.py; on a cluster, quicker: test_collection.py.
@pytest.mark.conformance
@pytest.mark.parametrize(("name", "optimizer"), [("shuffle", "clipped"), (None, "adam")])
def test_one_process(
    name: str | None, optimizer: str, cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    """All pairs are tested in ``tests/unit/numbers``."""
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    with strategy_with(cluster(workers=1, ps=2), partitioner) as strategy:
        assert_rows_travel_of_a_fit(strategy, OPTIMIZERS[optimizer])


@pytest.mark.conformance
def test_pipelined_rows_lack_one_update(cluster: Callable[..., LocalCluster], carrier: str) -> None:
    mode = tfps.Asynchronous(pipeline_steps=1)
    with strategy_with(
        cluster(workers=1, ps=2), PARTITIONERS["shuffle"], consistency=mode
    ) as strategy:
        assert_rows_lack_one_update(strategy, EXACT["adagrad"])
