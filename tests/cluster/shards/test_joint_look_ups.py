"""Look-ups that follow from a batch are one request to each server, on either carrier."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.numbers.many_tables import assert_many_tables_take_one_request
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


@pytest.mark.conformance
def test_many_tables_are_one_request(cluster: Callable[..., LocalCluster], carrier: str) -> None:
    """The numbers of one process are in ``tests/unit/numbers``."""
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        assert_many_tables_take_one_request(strategy)
