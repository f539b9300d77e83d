"""What a push does to a server's books, from admission to the next ticket. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfps.consistency import ledger as decide
from tfps.consistency.ledger import NO_TICKET, Entries
from tfps.transport.message import Request


@dataclass(frozen=True)
class Turn:
    """What a server function knows of a push before it comes.

    Args:
        stage: which of the step's optimizer calls.
        is_update: it carries gradients; else only state such as moving averages.
        hands_out: the last stage on the ticket server: closes a ticket, hands out the next.
        received_bytes: the request's payload.
        sent_bytes: the reply's payload.
        pipelined: workers compute a step while the one before is on its way.
        drop_above: the staleness above which its gradients are dropped; None: none are.
    """

    stage: int
    is_update: bool
    hands_out: bool
    received_bytes: int
    sent_bytes: int
    pipelined: bool = False
    drop_above: int | None = None


@dataclass(frozen=True)
class Pushed:
    """What follows from a push."""

    status: Any
    version: Any
    staleness: Any
    next_ticket: Any
    alive: Any  # whether the sender takes part
    fresh: Any  # apply it
    closed: Any  # count the report of the step before; None: this server takes none
    active: Any  # workers that take part
    remembered: Any  # the largest key applied in this ticket's cell of the window


def push(
    entries: Entries,
    *,
    header: Sequence[Any],
    slot: Any,
    is_ours: Any,
    turn: Turn,
    applied_key: Any,
) -> Pushed:
    """Admit a push, close the ticket before it, hand out the next, and count.

    Args:
        entries: the server's books.
        header: the request's, field by field.
        slot: the worker, as the books want it.
        is_ours: whether the request was made for this server function.
        turn: of the function that was called.
        applied_key: the largest key applied so far in this ticket's cell of the window.
    """
    logic, ticket = entries.logic, header[Request.TICKET]
    key = decide.key_of(ticket, turn.stage)
    admission = decide.admit(
        entries,
        alive=entries.is_alive(slot, logic.choose(is_ours, header[Request.INCARNATION], -1)),
        key=key,
        applied_key=applied_key,
        base_version=header[Request.BASE_VERSION],
        is_update=turn.is_update,
        drop_above=turn.drop_above,
    )
    closed, next_ticket = None, NO_TICKET
    if turn.hands_out:
        closed = decide.close(
            entries,
            alive=admission.alive,
            slot=slot,
            ticket=header[Request.CLOSES],
            examples=header[Request.EXAMPLES],
        )
        next_ticket = decide.issue(
            entries, alive=admission.alive, slot=slot, pushed=ticket, pipelined=turn.pipelined
        )
    entries.count_traffic(received_bytes=turn.received_bytes, sent_bytes=turn.sent_bytes)
    version = entries.read(entries.books.VERSION)
    return Pushed(
        status=admission.status,
        version=version + logic.choose(admission.fresh, 1, 0) if turn.is_update else version,
        staleness=admission.staleness,
        next_ticket=next_ticket,
        alive=admission.alive,
        fresh=admission.fresh,
        closed=closed,
        active=entries.read(entries.books.ACTIVE_WORKERS),
        remembered=logic.choose(admission.known, key, applied_key),
    )
