"""The ledger of a server that was started anew, from those that know more than a checkpoint. Pure.

Updates are known by the servers that lived: what a returned server lacks is the state of its rows,
not the knowledge of what was applied. So no ticket is applied twice, and none is left out.

What server 0 alone knows, which tickets are out and what they counted, was read by the chief some
moments before. Tickets that were not closed by then are handed out again, which the servers answer
with `DUPLICATE` where they have been applied: such a step changes nothing, and is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfps.consistency import ledger as decide
from tfps.consistency.ledger import MAX_CALLS, Ledger, LedgerLayout
from tfps.consistency.logic import PlainLogic


def returned_ledger(
    layout: LedgerLayout,
    *,
    living: Sequence[int] | None,
    seen: Sequence[int] | None,
    incarnations: Mapping[int, int],
    limit: int = -1,
) -> list[int]:
    """Return the cells of a server that comes back; no worker takes part.

    Args:
        layout: of the ledger.
        living: of a server that was not lost, now; None: there is none.
        seen: of the lost server as the chief saw it last, if it hands out tickets.
        incarnations: of each worker, the newest; an older one is refused.
        limit: of tickets, as it was set last; below 0: none is handed out.
    """
    cells = layout.blank() if seen is None else _without_workers(layout, seen)
    if seen is not None:
        cells[layout.LIMIT] = limit if limit >= 0 else cells[layout.NEXT]
    for worker in range(layout.workers):
        known = [cells[layout.incarnation(worker)], incarnations.get(worker, 0)]
        if living is not None:
            known.append(living[layout.incarnation(worker)])
            cells[layout.clock(worker)] = living[layout.clock(worker)]
        cells[layout.incarnation(worker)] = max(known)
        cells[layout.waiting(worker)] = 0
    if living is not None:
        for cell in (layout.VERSION, layout.POSITION, layout.LARGEST_GAP):
            cells[cell] = living[cell]
    return cells


def applied_by_the_lost(
    layout: LedgerLayout, seen: Sequence[int], *, window: int
) -> dict[int, int]:
    """Where no server lived: the tickets that are open and were applied, as cells of the window.

    Args:
        layout: of the ledger.
        seen: of the lost server as the chief saw it last.
        window: how many tickets are remembered.
    """
    tickets = [seen[layout.unclosed(worker)] for worker in range(layout.workers)]
    return {t % window: decide.key_of(t, MAX_CALLS - 1) for t in tickets if t >= 0}


def _without_workers(layout: LedgerLayout, seen: Sequence[int]) -> list[int]:
    """The ledger after all workers were let out: their tickets are back."""
    cells = [int(cell) for cell in seen]
    for worker in range(layout.workers):
        ledger = Ledger(layout=layout, read=cells.__getitem__, logic=PlainLogic())
        decide.remove(ledger, worker=worker, leaves=True, closed=False)
        for cell, value in ledger.writes:
            cells[cell] = value
        for condition, cell, amount in ledger.additions:
            cells[cell] += amount if condition else 0
    return cells
