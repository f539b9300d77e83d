"""In a custom loop on a cluster, too, only a batch's rows travel of a large table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.numbers.combinations import Case, SameNumbers, assert_outcome
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


# On a cluster, quicker: test_row_primitives.py.
@pytest.mark.conformance
def test_one_process(cluster: Callable[..., LocalCluster], carrier: str) -> None:
    """Every mode and way is in ``tests/unit/numbers/test_modes_ways_tables.py``."""
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        assert_outcome(strategy, Case("asynchronous", "two calls", "large table", SameNumbers()))
