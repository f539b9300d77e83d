"""The counts of a server that continue, with as many servers and with another number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfps.checkpoint.counters import read_counters, to_cells
from tfps.consistency.ledger import LedgerLayout

LAYOUT = LedgerLayout(workers=2)


def _cells(version: int, dropped: int, staleness: dict[int, int]) -> np.ndarray[Any, Any]:
    cells = np.array(LAYOUT.make_blank_cells(), np.int64)
    cells[LAYOUT.VERSION], cells[LAYOUT.DROPPED] = version, dropped
    cells[LAYOUT.EXAMPLES], cells[LAYOUT.NEXT], cells[LAYOUT.steps(1)] = 640, 12, 9
    for value, count in staleness.items():
        cells[LAYOUT.staleness(value)] = count
    return cells


SAVED = [_cells(10, 1, {0: 4, 63: 6}), _cells(11, 2, {1: 11})]


def _after(servers: int) -> list[np.ndarray[Any, Any]]:
    counters = read_counters(LAYOUT, SAVED)
    after = []
    for restored in to_cells(LAYOUT, counters, servers=servers):
        cells = _cells(77, 77, {2: 77})  # of a training that went on meanwhile
        cells[list(restored)] = list(restored.values())
        after.append(cells)
    return after


def test_they_are_read() -> None:
    counters = read_counters(LAYOUT, SAVED)
    assert counters.versions == (10, 11)
    assert counters.staleness == ({0: 4, 63: 6}, {1: 11})
    assert counters.gradients_dropped == (1, 2)
    assert (counters.examples_seen, counters.next_ticket) == (640, 12)
    assert counters.worker_steps == (0, 9)


def test_as_many_servers_take_over_their_own() -> None:
    found, saved = read_counters(LAYOUT, _after(2)), read_counters(LAYOUT, SAVED)
    assert found == saved


@pytest.mark.parametrize("servers", [1, 3])
def test_another_number_takes_over_the_first_ones(servers: int) -> None:
    found = read_counters(LAYOUT, _after(servers))
    assert found.versions == (10,) * servers
    assert found.staleness == ({0: 4, 63: 6},) * servers
    assert found.examples_seen == 640
