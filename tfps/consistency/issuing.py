"""Which ticket a worker gets next, or which several. Pure, like `ledger`, whose cells it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfps.consistency.ledger import NO_TICKET, Entries


@dataclass(frozen=True)
class TicketGrant:
    """The tickets that a reply brings.

    Args:
        ticket: the next one.
        batches: how many tickets it stands for.
        ahead: the one after it, for a pipelined worker.
    """

    ticket: Any = NO_TICKET
    batches: Any = 1
    ahead: Any = NO_TICKET


NO_GRANT = TicketGrant()


@dataclass(frozen=True)
class _Drawn:
    """A ticket off the pile; of several that came back together, the first."""

    ticket: Any
    is_new: Any
    came_back: Any
    position: Any  # among those that came back
    last: Any  # of those: it takes the place of the one drawn


def _draw(entries: Entries, alive: Any) -> _Drawn:
    layout, logic = entries.layout, entries.logic
    count, upcoming = entries.read(layout.RETURNED), entries.read(layout.NEXT)
    came_back = logic.both(alive, count > 0)
    is_new = logic.both(logic.both(alive, count <= 0), upcoming < entries.read(layout.LIMIT))
    position = logic.position_of_smallest(
        entries.read, begin=layout.returned(0), capacity=layout.most_returned, count=count
    )
    smallest = entries.read(layout.returned(position))
    last = logic.choose(count > 0, count - 1, 0)
    ticket = logic.choose(came_back, smallest, logic.choose(is_new, upcoming, NO_TICKET))
    entries.write_if(came_back, layout.returned(position), entries.read(layout.returned(last)))
    entries.count_if(came_back, layout.RETURNED, -1)
    return _Drawn(ticket, is_new, came_back, position, last)


def issue(
    entries: Entries,
    *,
    alive: Any,
    worker: Any,
    pushed: Any,
    quota: Any = None,
    pipelined: bool = False,
) -> TicketGrant:
    """Hand the next ticket to a worker: one that came back, else a new one, else none.

    Of those that came back the smallest goes first. Where the data end before the tickets do, a
    worker that finds no batch leaves; none with a batch may lie behind its ticket then.

    Args:
        entries: the ticket server's ledger.
        alive: whether the worker may have one.
        worker: its index.
        pushed: the ticket that it pushed with this request and that stays on its account; of
            several the first.
        quota: how many consecutive tickets it may have at once; None: one.
        pipelined: the worker computes a step while the one before is on its way, so it may have
            another ticket already; the new one comes after that.
    """
    if quota is None:
        return _issue_one(entries, alive=alive, worker=worker, pushed=pushed, pipelined=pipelined)
    return _issue_several(entries, alive=alive, worker=worker, pushed=pushed, quota=quota)


def _issue_one(
    entries: Entries, *, alive: Any, worker: Any, pushed: Any, pipelined: bool
) -> TicketGrant:
    layout, logic = entries.layout, entries.logic
    drawn = _draw(entries, alive)
    entries.count_if(drawn.is_new, layout.NEXT)
    held = drawn.ticket
    if pipelined:
        held_before = entries.read(layout.held(worker))
        rest = logic.choose(held_before == pushed, entries.read(layout.ahead(worker)), held_before)
        held = logic.choose(rest >= 0, rest, drawn.ticket)
        ahead = logic.choose(rest >= 0, drawn.ticket, NO_TICKET)
        entries.write_if(alive, layout.ahead(worker), ahead)
    entries.write_if(alive, layout.held(worker), held)
    entries.write_if(alive, layout.unclosed(worker), pushed)
    return TicketGrant(drawn.ticket)


def _issue_several(
    entries: Entries, *, alive: Any, worker: Any, pushed: Any, quota: Any
) -> TicketGrant:
    """Those that came back stay together, whatever the quota.

    Another worker repeats the same ones, so that servers know them.
    """
    layout, logic = entries.layout, entries.logic
    drawn = _draw(entries, alive)
    left = entries.read(layout.LIMIT) - entries.read(layout.NEXT)
    fresh = logic.smaller(quota, left)
    entries.count_if(drawn.is_new, layout.NEXT, fresh)
    returned = entries.read(layout.returned_batches(drawn.position))
    count = logic.choose(drawn.came_back, returned, logic.choose(drawn.is_new, fresh, 0))
    moved = entries.read(layout.returned_batches(drawn.last))
    entries.write_if(drawn.came_back, layout.returned_batches(drawn.position), moved)
    entries.write_if(
        alive, layout.unclosed_batches(worker), entries.read(layout.held_batches(worker))
    )
    entries.write_if(alive, layout.held_batches(worker), count)
    entries.write_if(alive, layout.held(worker), drawn.ticket)
    entries.write_if(alive, layout.unclosed(worker), pushed)
    return TicketGrant(drawn.ticket, count)


def withdraw(entries: Entries, *, ticket: Any) -> Any:
    """Take a ticket for good off those that came back; answers whether it was one of them."""
    layout, logic = entries.layout, entries.logic
    count = entries.read(layout.RETURNED)
    position = logic.position_of_smallest(
        lambda cell: abs(entries.read(cell) - ticket),
        begin=layout.returned(0),
        capacity=layout.most_returned,
        count=count,
    )
    last = logic.choose(count > 0, count - 1, 0)
    found = logic.both(count > 0, entries.read(layout.returned(position)) == ticket)
    for account in (layout.returned, layout.returned_batches):
        entries.write_if(found, account(position), entries.read(account(last)))
    entries.count_if(found, layout.RETURNED, -1)
    return found
