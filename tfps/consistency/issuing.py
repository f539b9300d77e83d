"""The choice of the tickets that a worker gets next. Pure, like `ledger`, whose cells it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfps.consistency.ledger import NO_TICKET, Ledger


@dataclass(frozen=True)
class TicketGrant:
    """The tickets that a reply issues to a worker.

    Args:
        ticket: the next one.
        batches: the number of tickets that it stands for.
    """

    ticket: Any = NO_TICKET
    batches: Any = 1


NO_GRANT = TicketGrant()


@dataclass(frozen=True)
class _DrawnTicket:
    """The next ticket to issue, or the first of several that were returned together."""

    ticket: Any
    is_new: Any
    is_returned: Any
    position: Any  # among the returned tickets
    last: Any  # the last returned ticket's position; that ticket moves to ``position``


def _draw_ticket(ledger: Ledger, alive: Any) -> _DrawnTicket:
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
    return _DrawnTicket(ticket, is_new, is_returned, position, last)


def issue(
    ledger: Ledger,
    *,
    alive: Any,
    worker: Any,
    pushed: Any,
    quota: Any = None,
) -> TicketGrant:
    """Issue the next ticket to a worker: a returned one, else a new one, else none.

    Of the returned tickets the smallest goes first. If the data end before the tickets do, a worker
    without a batch leaves; at that moment no ticket after its own may have a batch.

    Args:
        ledger: the ledger of the ticket server.
        alive: whether the worker may have one.
        worker: the worker's index.
        pushed: the ticket that it pushed with this request and that stays with it; of several the
            first.
        quota: the number of consecutive tickets that it may have at once; None: one.
    """
    if quota is not None:
        return _issue_several(ledger, alive=alive, worker=worker, pushed=pushed, quota=quota)
    layout = ledger.layout
    drawn = _draw_ticket(ledger, alive)
    ledger.count_if(drawn.is_new, layout.NEXT)
    ledger.write_if(alive, layout.held(worker), drawn.ticket)
    ledger.write_if(alive, layout.unclosed(worker), pushed)
    return TicketGrant(drawn.ticket)


def _issue_several(
    ledger: Ledger, *, alive: Any, worker: Any, pushed: Any, quota: Any
) -> TicketGrant:
    """Issue a quota of new tickets, or tickets that were returned together.

    Those stay together whatever the quota is: another worker repeats the same ones, so that servers
    know them.
    """
    layout, logic = ledger.layout, ledger.logic
    drawn = _draw_ticket(ledger, alive)
    left = ledger.read(layout.LIMIT) - ledger.read(layout.NEXT)
    fresh = logic.minimum(quota, left)
    ledger.count_if(drawn.is_new, layout.NEXT, fresh)
    returned = ledger.read(layout.returned_batches(drawn.position))
    count = logic.choose(drawn.is_returned, returned, logic.choose(drawn.is_new, fresh, 0))
    moved = ledger.read(layout.returned_batches(drawn.last))
    ledger.write_if(drawn.is_returned, layout.returned_batches(drawn.position), moved)
    ledger.write_if(
        alive, layout.unclosed_batches(worker), ledger.read(layout.held_batches(worker))
    )
    ledger.write_if(alive, layout.held_batches(worker), count)
    ledger.write_if(alive, layout.held(worker), drawn.ticket)
    ledger.write_if(alive, layout.unclosed(worker), pushed)
    return TicketGrant(drawn.ticket, count)


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
    for field in (layout.returned, layout.returned_batches):
        ledger.write_if(is_returned, field(position), ledger.read(field(last)))
    ledger.count_if(is_returned, layout.RETURNED, -1)
    return is_returned
