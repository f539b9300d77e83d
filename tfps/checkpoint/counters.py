"""Convert the counters of servers' ledgers to and from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfps.checkpoint.manifest import Counters
from tfps.consistency.ledger import STALENESS_BINS, LedgerLayout


def read_counters(layout: LedgerLayout, all_cells: Sequence[np.ndarray[Any, Any]]) -> Counters:
    """Read the ledgers of all servers while the workers are drained.

    Args:
        layout: the layout of the ledger.
        all_cells: the cells of each server; the first one issues tickets.
    """
    tickets = all_cells[0]
    return Counters(
        versions=tuple(int(cells[layout.VERSION]) for cells in all_cells),
        staleness=tuple(layout.staleness_counts(cells) for cells in all_cells),
        gradients_dropped=tuple(int(cells[layout.DROPPED]) for cells in all_cells),
        examples_seen=int(tickets[layout.EXAMPLES]),
        worker_steps=tuple(int(tickets[layout.steps(worker)]) for worker in range(layout.workers)),
        next_ticket=int(tickets[layout.NEXT]),
    )


def to_cells(layout: LedgerLayout, counters: Counters, *, servers: int) -> list[dict[int, int]]:
    """Return the cells to write on each server, so that its counts continue.

    With the same number of servers each takes over its own counts. With another number all take
    over those of the first, and as the version the smallest: versions are equal once workers are
    drained. Tickets, clocks and workers' steps belong to processes that are gone: the manifest
    shows them, and they start anew.

    Args:
        layout: the layout of the ledger.
        counters: the counters of the checkpoint.
        servers: the current number of servers.
    """
    same = servers == len(counters.versions)
    cells = []
    for server in range(servers):
        at = server if same else 0
        staleness = counters.staleness[at]
        cells.append(
            {
                layout.VERSION: counters.versions[at] if same else min(counters.versions),
                layout.DROPPED: counters.gradients_dropped[at],
                layout.EXAMPLES: counters.examples_seen if server == 0 else 0,
                **{
                    layout.staleness(value): staleness.get(value, 0)
                    for value in range(STALENESS_BINS)
                },
            }
        )
    return cells
