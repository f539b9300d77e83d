"""Requests of the chief to a ledger: tickets and their limit, expected workers, takeovers. Pure.

The chief repeats a request without a reply, so each may arrive twice, and late.
"""

from __future__ import annotations

from typing import Any

from tfps.consistency.ledger import NO_TICKET, Ledger

REPLACED = -2  # the reply to a chief that is not the newest


def open_tickets(ledger: Ledger, *, count: Any, term: Any, move: Any) -> Any:
    """Start a ticket run of ``count`` tickets. Returns the first one, or `REPLACED`.

    Tickets of an earlier run are void. A repeated request finds the run of the first one. It may
    arrive when workers already hold tickets of that run, and must not take those away.

    Args:
        ledger: the ledger of the ticket server.
        count: the number of tickets.
        term: the term of the chief.
        move: the chief's number of this change of the limit; it grows.
    """
    layout, logic = ledger.layout, ledger.logic
    obeyed = ledger.read(layout.TERM) == term
    is_new = logic.logical_and(obeyed, move > ledger.read(layout.MOVE))
    upcoming = ledger.read(layout.NEXT)
    first = logic.choose(is_new, upcoming, ledger.read(layout.LIMIT) - count)
    ledger.write_if(is_new, layout.MOVE, move)
    ledger.write_if(is_new, layout.LIMIT, upcoming + count)
    ledger.write_if(is_new, layout.RETURNED, 0)
    # Between runs the chief may assign, so the servers hold the newest mirrored weights.
    ledger.write_if(is_new, layout.HOME, ledger.read(layout.REDUCED))
    for worker in range(layout.workers):
        for field in (layout.held, layout.unclosed):
            ledger.write_if(is_new, field(worker), NO_TICKET)
    return logic.choose(obeyed, first, REPLACED)


def move_limit(ledger: Ledger, *, limit: Any, term: Any, move: Any) -> Any:
    """Issue only tickets below a number, or none if it is negative.

    Returns the ticket that would come next, or `REPLACED`.

    Args:
        ledger: the ledger of the ticket server.
        limit: the number.
        term: the term of the chief.
        move: the chief's number of this change of the limit; it grows. See `open_tickets`.
    """
    layout, logic = ledger.layout, ledger.logic
    obeyed = ledger.read(layout.TERM) == term
    is_new = logic.logical_and(obeyed, move > ledger.read(layout.MOVE))
    upcoming = ledger.read(layout.NEXT)
    ledger.write_if(is_new, layout.MOVE, move)
    ledger.write_if(is_new, layout.LIMIT, logic.choose(limit >= 0, limit, upcoming))
    return logic.choose(obeyed, upcoming, REPLACED)


def end_rounds(ledger: Ledger, *, first: Any, together: Any, term: Any, move: Any) -> Any:
    """Issue only the tickets that are left of a round that has begun.

    A limit that the chief computes comes too late for a worker of the round that has got none.
    Returns the new limit, or `REPLACED`.

    Args:
        ledger: the ledger of the ticket server.
        first: the first ticket of the run.
        together: the number of tickets in a round; 1 where there are no rounds.
        term: the term of the chief.
        move: the chief's number of this change of the limit; it grows. See `open_tickets`.
    """
    layout, logic = ledger.layout, ledger.logic
    issued = ledger.read(layout.NEXT) - first
    whole = first + (issued + together - 1) // together * together
    before = ledger.read(layout.LIMIT)
    is_repeated = move <= ledger.read(layout.MOVE)
    limit = logic.choose(is_repeated, before, logic.minimum(whole, before))
    reply = move_limit(ledger, limit=limit, term=term, move=move)
    return logic.choose(reply == REPLACED, reply, limit)


def come_home(ledger: Ledger, *, updates: Any) -> Any:
    """Record that the chief writes the mirrored weights of a number of updates to the servers.

    Returns whether no later update was made.
    """
    layout = ledger.layout
    is_newest = ledger.read(layout.REDUCED) == updates
    ledger.write_if(is_newest, layout.HOME, updates)
    return is_newest


def count_up_to(ledger: Ledger, *, version: Any) -> Any:
    """Raise the count of updates to another server's. Returns whether it has changed.

    A worker may die when one server has its gradient and another has not. The latter takes it
    later, in a round of its own, when another worker repeats the ticket, and so counts one round
    more.
    """
    layout = ledger.layout
    known = ledger.read(layout.VERSION)
    is_more = version > known
    ledger.write_if(is_more, layout.VERSION, version)
    ledger.count_if(is_more, layout.APART, version - known)
    return is_more


def expect(ledger: Ledger, *, number: Any) -> Any:
    """Record a request to expect workers in rounds. Returns whether it is newer than all before.

    A late one could let a round wait for a worker that has joined meanwhile and waits for the next
    round, or for one that has ended.

    Args:
        ledger: the ledger of a server.
        number: the number of the request; it grows.
    """
    layout = ledger.layout
    is_new = number > ledger.read(layout.EXPECTATION)
    ledger.write_if(is_new, layout.EXPECTATION, number)
    return is_new


def claim_job(ledger: Ledger, *, term: Any) -> Any:
    """Make a server obey a chief, unless a newer one is known; return its term or `REPLACED`."""
    layout = ledger.layout
    newer = term > ledger.read(layout.TERM)
    ledger.write_if(newer, layout.TERM, term)
    for count in (layout.MOVE, layout.EXPECTATION):
        ledger.write_if(newer, count, 0)  # each chief counts its own
    return ledger.logic.choose(newer, term, REPLACED)
