"""What of a server's ledger a checkpoint keeps, and what of it new servers take over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfps.checkpoint.manifest import Counters
from tfps.consistency.ledger import STALENESS_BINS, LedgerLayout


def counters_of(layout: LedgerLayout, all_cells: Sequence[np.ndarray[Any, Any]]) -> Counters:
    """Read the ledgers of all servers while the workers are drained.

    Args:
        layout: of the ledger.
        all_cells: of each server; the first one hands out tickets.
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


def cells_of(layout: LedgerLayout, counters: Counters, *, servers: int) -> list[dict[int, int]]:
    """The cells to write on each server, so that its counts go on.

    With as many servers as there were, each takes over its own. With another number all take over
    those of the first, but for the version, which is the smallest: they are equal once drained.
    Tickets, clocks and what a worker has done belong to processes that are gone: they are in the
    manifest to be read, and start anew.

    Args:
        layout: of the ledger.
        counters: of the checkpoint.
        servers: how many there are now.
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
