"""In a custom loop, too, only a batch's rows travel of a large table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.numbers.large_tables import (
    MODES,
    MODES_BY_ROWS,
    OPTIMIZERS,
    assert_scheduled_steps_are_those_of_one_process,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tfps.launch import LocalCluster

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(240)]


# Numbers alone: one process has them in tests/unit/numbers/shards; on a cluster, quicker:
# test_row_primitives.py.
@pytest.mark.conformance
@pytest.mark.parametrize(
    ("mode", "name", "optimizer", "calls"),
    [
        ("asynchronous", "shuffle", "adam", 2),
        ("bounded", None, "sgd", 1),
        ("synchronous", "shuffle", "clipped", 1),
        ("local", None, "clipped together", 2),
    ],
)
def test_one_process(
    mode: str,
    name: str | None,
    optimizer: str,
    calls: int,
    *,
    cluster: Callable[..., LocalCluster],
    carrier: str,
) -> None:
    """One of each mode; every pair is in ``tests/unit/numbers``."""
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    running = cluster(workers=1, ps=2)
    with strategy_with(running, partitioner, consistency=MODES[mode]) as strategy:
        assert_scheduled_steps_are_those_of_one_process(
            strategy, OPTIMIZERS[optimizer], calls=calls, by_rows=mode in MODES_BY_ROWS
        )
