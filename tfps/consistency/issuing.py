"""The choice of the ticket that a worker gets next. Pure, like `ledger`, whose cells it writes."""

from __future__ import annotations

from typing import Any

from tfps.consistency.ledger import NO_TICKET, Ledger


def issue(ledger: Ledger, *, alive: Any, worker: Any, pushed: Any) -> Any:
    """Issue the next ticket to a worker: a returned one, else a new one, else none.

    Of the returned tickets the smallest goes first. If the data end before the tickets do, a worker
    without a batch leaves; at that moment no ticket after its own may have a batch.

    Args:
        ledger: the ledger of the ticket server.
        alive: whether the worker may have one.
        worker: the worker's index.
        pushed: the ticket that it pushed with this request and that stays with it.
    """
    layout, logic = ledger.layout, ledger.logic
    count, upcoming = ledger.read(layout.RETURNED), ledger.read(layout.NEXT)
    is_returned = logic.logical_and(alive, count > 0)
    is_new = logic.logical_and(
        logic.logical_and(alive, count <= 0), upcoming < ledger.read(layout.LIMIT)
    )
    position = logic.position_of_smallest(
        ledger.read, begin=layout.returned(0), capacity=layout.most_returned, count=count
    )
    smallest = ledger.read(layout.returned(position))
    last = logic.choose(count > 0, count - 1, 0)
    ticket = logic.choose(is_returned, smallest, logic.choose(is_new, upcoming, NO_TICKET))
    ledger.write_if(is_returned, layout.returned(position), ledger.read(layout.returned(last)))
    ledger.count_if(is_returned, layout.RETURNED, -1)
    ledger.count_if(is_new, layout.NEXT)
    ledger.write_if(alive, layout.held(worker), ticket)
    ledger.write_if(alive, layout.unclosed(worker), pushed)
    return ticket


def withdraw_ticket(ledger: Ledger, *, ticket: Any) -> Any:
    """Remove a ticket from the returned ones. Returns whether it was one of them."""
    layout, logic = ledger.layout, ledger.logic
    count = ledger.read(layout.RETURNED)
    position = logic.position_of_smallest(
        lambda cell: abs(ledger.read(cell) - ticket),
        begin=layout.returned(0),
        capacity=layout.most_returned,
        count=count,
    )
    last = logic.choose(count > 0, count - 1, 0)
    is_returned = logic.logical_and(count > 0, ledger.read(layout.returned(position)) == ticket)
    ledger.write_if(is_returned, layout.returned(position), ledger.read(layout.returned(last)))
    ledger.count_if(is_returned, layout.RETURNED, -1)
    return is_returned
