"""What the chief asks of a ledger: tickets, their limit, whom to expect, to be obeyed. Pure.

It repeats a request that is not answered in time, so each may arrive twice, and late.
"""

from __future__ import annotations

from typing import Any

from tfps.consistency.ledger import NO_TICKET, Ledger

REPLACED = -2  # answers a chief that is not the newest


def open_tickets(ledger: Ledger, *, count: Any, term: Any, move: Any) -> Any:
    """Start a round of ``count`` tickets; answers the first, or `REPLACED`.

    What an earlier round left is void. A request that is repeated finds the round of the first one,
    which may also arrive when workers hold tickets of it: it must not take those away.

    Args:
        ledger: of the ticket server.
        count: how many.
        term: of the chief that asks.
        move: its number of the limit, larger each time.
    """
    layout, logic = ledger.layout, ledger.logic
    obeyed = ledger.read(layout.TERM) == term
    is_new = logic.both(obeyed, move > ledger.read(layout.MOVE))
    upcoming = ledger.read(layout.NEXT)
    first = logic.choose(is_new, upcoming, ledger.read(layout.LIMIT) - count)
    ledger.write_if(is_new, layout.MOVE, move)
    ledger.write_if(is_new, layout.LIMIT, upcoming + count)
    ledger.write_if(is_new, layout.RETURNED, 0)
    for worker in range(layout.workers):
        for field in (layout.held, layout.unclosed, layout.ahead):
            ledger.write_if(is_new, field(worker), NO_TICKET)
    return logic.choose(obeyed, first, REPLACED)


def move_limit(ledger: Ledger, *, limit: Any, term: Any, move: Any) -> Any:
    """Hand out tickets below a number only, or none if it is negative.

    Answers the ticket that would come next, or `REPLACED`.

    Args:
        ledger: of the ticket server.
        limit: the number.
        term: of the chief that asks.
        move: its number of the limit, larger each time; see `open_tickets`.
    """
    layout, logic = ledger.layout, ledger.logic
    obeyed = ledger.read(layout.TERM) == term
    is_new = logic.both(obeyed, move > ledger.read(layout.MOVE))
    upcoming = ledger.read(layout.NEXT)
    ledger.write_if(is_new, layout.MOVE, move)
    ledger.write_if(is_new, layout.LIMIT, logic.choose(limit >= 0, limit, upcoming))
    return logic.choose(obeyed, upcoming, REPLACED)


def count_up_to(ledger: Ledger, *, version: Any) -> Any:
    """Count as many updates as another server has, or more; answers whether that changes anything.

    A worker may die when one server has its gradient and another has not. That one takes it in a
    round of its own later, when another worker repeats the ticket, and so counts a round more.
    """
    layout = ledger.layout
    known = ledger.read(layout.VERSION)
    is_more = version > known
    ledger.write_if(is_more, layout.VERSION, version)
    ledger.count_if(is_more, layout.APART, version - known)
    return is_more


def expect(ledger: Ledger, *, number: Any) -> Any:
    """Expect workers in rounds; answers whether the request does that, which a late one does not.

    It would let a round wait for a worker that has joined meanwhile and waits for the next one, or
    for one that has ended.

    Args:
        ledger: of any server.
        number: of the request, larger each time.
    """
    layout = ledger.layout
    is_new = number > ledger.read(layout.EXPECTATION)
    ledger.write_if(is_new, layout.EXPECTATION, number)
    return is_new


def take_over(ledger: Ledger, *, term: Any) -> Any:
    """Obey a chief from now on, unless a newer one is known; answers the term, or `REPLACED`."""
    layout = ledger.layout
    newer = term > ledger.read(layout.TERM)
    ledger.write_if(newer, layout.TERM, term)
    for count in (layout.MOVE, layout.EXPECTATION):
        ledger.write_if(newer, count, 0)  # it counts its own
    return ledger.logic.choose(newer, term, REPLACED)
