"""The progress line's text about the pace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from tfps.consistency.ledger import LedgerLayout
from tfps.strategy.reading.pace import describe_pace


def test_staleness_is_that_of_the_epoch() -> None:
    layout = LedgerLayout(2)
    cells = np.zeros(layout.size, np.int64)
    cells[layout.staleness(0)], cells[layout.staleness(1)], cells[layout.staleness(8)] = 10, 30, 90
    runtime: Any = SimpleNamespace(ticket_server=SimpleNamespace(layout=layout), servers=[])
    state: Any = SimpleNamespace(
        newest_run=SimpleNamespace(cells=cells, traffic=None),
        progress=None,
        staleness_before={1: 20, 8: 90},
    )
    assert (
        describe_pace([True, False], state=state, runtime=runtime) == "1/2 workers - staleness 0.5"
    )
    state.staleness_before = layout.staleness_counts(cells)
    assert describe_pace([True, True], state=state, runtime=runtime) == "2/2 workers"
