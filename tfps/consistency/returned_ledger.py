"""Make the ledger of a restarted server from other servers and the chief. Pure.

The servers that lived know all updates: a returned server lacks the state of its rows, but not the
knowledge of applied pushes. So no ticket is applied twice, and none is left out.

Only server 0 knows which tickets are out and what they counted; the chief has read this some
moments before. Tickets that were not closed by then are issued again. Servers that have applied one
reply `DUPLICATE`: such a step changes nothing, and is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfps.consistency import ledger as decide
from tfps.consistency.applied_window import Window, blank_window, cell_of_ticket
from tfps.consistency.ledger import MAX_CALLS, NEVER, NOTHING, Ledger, LedgerLayout
from tfps.consistency.logic import PlainLogic


def make_returned_ledger(
    layout: LedgerLayout,
    *,
    living: Sequence[int] | None,
    seen: Sequence[int] | None,
    incarnations: Mapping[int, int],
    limit: int = -1,
) -> list[int]:
    """Return the cells of a server that comes back; no worker takes part.

    Args:
        layout: the layout of the ledger.
        living: the current cells of a server that was not lost; None: there is none.
        seen: the lost server's cells when the chief last read them, if it issues tickets.
        incarnations: the newest incarnation of each worker; older ones are refused.
        limit: the latest limit of tickets; below 0: none is issued.
    """
    cells = layout.make_blank_cells() if seen is None else without_workers(layout, seen)
    if seen is not None:
        cells[layout.LIMIT] = limit if limit >= 0 else cells[layout.NEXT]
    for worker in range(layout.workers):
        known = [cells[layout.incarnation(worker)], incarnations.get(worker, 0)]
        if living is not None:
            known.append(living[layout.incarnation(worker)])
            cells[layout.clock(worker)] = living[layout.clock(worker)]
        cells[layout.incarnation(worker)] = max(known)
        cells[layout.waiting(worker)] = cells[layout.contributed(worker)] = 0
        cells[layout.begins(worker)], cells[layout.wanted(worker)] = NEVER, NOTHING
    if living is not None:
        for cell in (layout.VERSION, layout.POSITION, layout.LARGEST_GAP):
            cells[cell] = living[cell]
    return cells


def applied_on_lost_server(layout: LedgerLayout, seen: Sequence[int] | None) -> Window:
    """Return a window in which only the workers' open tickets of `fit` were applied.

    For the case that no server has survived.

    Pushes of scheduled functions are lost with the rows, and come again.

    Args:
        layout: the layout of the ledger.
        seen: the lost server's cells when the chief last read them, if it issues tickets.
    """
    window = blank_window()
    workers = range(layout.workers)
    for ticket in [] if seen is None else [seen[layout.unclosed(w)] for w in workers]:
        if ticket >= 0:
            window[cell_of_ticket(ticket)] = decide.key_of(ticket, MAX_CALLS - 1)
    return window


def without_workers(layout: LedgerLayout, seen: Sequence[int]) -> list[int]:
    """Return the ledger after all workers were removed and their tickets have come back."""
    cells = [int(cell) for cell in seen]
    for worker in range(layout.workers):
        ledger = Ledger(layout=layout, read=cells.__getitem__, logic=PlainLogic())
        decide.remove(ledger, worker=worker, leaves=True, closed=False)
        for cell, value in ledger.writes:
            cells[cell] = value
        for condition, cell, amount in ledger.additions:
            cells[cell] += amount if condition else 0
    return cells
