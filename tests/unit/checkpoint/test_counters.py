"""What of a server's counts goes on, with as many servers and with another number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfps.checkpoint.counters import counters_of, entries_of
from tfps.consistency.ledger import LedgerLayout

BOOKS = LedgerLayout(workers=2)


def _cells(version: int, dropped: int, staleness: dict[int, int]) -> np.ndarray[Any, Any]:
    cells = np.array(BOOKS.blank(), np.int64)
    cells[BOOKS.VERSION], cells[BOOKS.DROPPED] = version, dropped
    cells[BOOKS.EXAMPLES], cells[BOOKS.NEXT], cells[BOOKS.steps(1)] = 640, 12, 9
    for value, count in staleness.items():
        cells[BOOKS.staleness(value)] = count
    return cells


SAVED = [_cells(10, 1, {0: 4, 63: 6}), _cells(11, 2, {1: 11})]


def _after(servers: int) -> list[np.ndarray[Any, Any]]:
    counters = counters_of(BOOKS, SAVED)
    after = []
    for entries in entries_of(BOOKS, counters, servers=servers):
        cells = _cells(77, 77, {2: 77})  # of a training that went on meanwhile
        cells[list(entries)] = list(entries.values())
        after.append(cells)
    return after


def test_they_are_read() -> None:
    counters = counters_of(BOOKS, SAVED)
    assert counters.versions == (10, 11)
    assert counters.staleness == ({0: 4, 63: 6}, {1: 11})
    assert counters.gradients_dropped == (1, 2)
    assert (counters.examples_seen, counters.next_ticket) == (640, 12)
    assert counters.worker_steps == (0, 9)


def test_as_many_servers_take_over_their_own() -> None:
    found, saved = counters_of(BOOKS, _after(2)), counters_of(BOOKS, SAVED)
    assert found == saved


@pytest.mark.parametrize("servers", [1, 3])
def test_another_number_takes_over_the_first_ones(servers: int) -> None:
    found = counters_of(BOOKS, _after(servers))
    assert found.versions == (10,) * servers
    assert found.staleness == ({0: 4, 63: 6},) * servers
    assert found.examples_seen == 640
