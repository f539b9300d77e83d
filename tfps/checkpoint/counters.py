"""What of a server's books a checkpoint keeps, and what of it new servers take over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfps.checkpoint.manifest import Counters
from tfps.consistency.ledger import STALENESS_BINS, Books


def counters_of(books: Books, all_cells: Sequence[np.ndarray[Any, Any]]) -> Counters:
    """Read the books of all servers at rest.

    Args:
        books: the accounts.
        all_cells: of each server; the first one hands out tickets.
    """
    tickets = all_cells[0]
    return Counters(
        versions=tuple(int(cells[books.VERSION]) for cells in all_cells),
        staleness=tuple(_staleness(books, cells) for cells in all_cells),
        gradients_dropped=tuple(int(cells[books.DROPPED]) for cells in all_cells),
        examples_seen=int(tickets[books.EXAMPLES]),
        worker_steps=tuple(int(tickets[books.steps(slot)]) for slot in range(books.slots)),
        next_ticket=int(tickets[books.NEXT]),
    )


def entries_of(books: Books, counters: Counters, *, servers: int) -> list[dict[int, int]]:
    """The cells to write on each server, so that its counts go on.

    With as many servers as there were, each takes over its own. With another number all take over
    those of the first, but for the version, which is the smallest: at rest they are equal anyhow.
    Tickets, clocks and what a worker has done belong to processes that are gone: they are in the
    manifest to be read, and start anew.

    Args:
        books: the accounts.
        counters: of the checkpoint.
        servers: how many there are now.
    """
    same = servers == len(counters.versions)
    entries = []
    for server in range(servers):
        at = server if same else 0
        staleness = counters.staleness[at]
        entries.append(
            {
                books.VERSION: counters.versions[at] if same else min(counters.versions),
                books.DROPPED: counters.gradients_dropped[at],
                books.EXAMPLES: counters.examples_seen if server == 0 else 0,
                **{
                    books.staleness(value): staleness.get(value, 0)
                    for value in range(STALENESS_BINS)
                },
            }
        )
    return entries


def _staleness(books: Books, cells: np.ndarray[Any, Any]) -> dict[int, int]:
    begin = books.staleness(0)
    counts = cells[begin : begin + STALENESS_BINS]
    return {value: int(count) for value, count in enumerate(counts) if count}
