"""What a push does to a server's books, from admission to the next ticket. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfps.consistency import issuing
from tfps.consistency import ledger as decide
from tfps.consistency.admission import admit, admit_to_round
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
class Sender:
    """What a server's rounds say of the worker that pushes."""

    alive: Any
    in_time: Any  # its parameters came from the round at hand
    position: Any  # of the server


@dataclass(frozen=True)
class Pushed:
    """What follows from a push."""

    status: Any
    version: Any
    staleness: Any
    next_ticket: Any
    next_batches: Any  # how many tickets that one stands for
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
    admission = admit(
        entries,
        alive=entries.is_alive(slot, logic.choose(is_ours, header[Request.INCARNATION], -1)),
        key=key,
        applied_key=applied_key,
        base_version=header[Request.BASE_VERSION],
        is_update=turn.is_update,
        drop_above=turn.drop_above,
    )
    closed, next_ticket, _ = _hand_out(
        entries, admission.alive, header=header, slot=slot, turn=turn
    )
    version = entries.read(entries.books.VERSION)
    return Pushed(
        status=admission.status,
        version=version + logic.choose(admission.fresh, 1, 0) if turn.is_update else version,
        staleness=admission.staleness,
        next_ticket=next_ticket,
        next_batches=1,
        alive=admission.alive,
        fresh=admission.fresh,
        closed=closed,
        active=entries.read(entries.books.ACTIVE_WORKERS),
        remembered=logic.choose(admission.known, key, applied_key),
    )


def contribute(
    entries: Entries,
    *,
    header: Sequence[Any],
    slot: Any,
    sender: Sender,
    turn: Turn,
    applied_key: Any,
    quota: Any = None,
) -> Pushed:
    """Admit a push to a round; the round, when it is complete, counts as the update.

    Args:
        entries: the server's books.
        header: the request's, field by field.
        slot: the worker, as the books want it.
        sender: what the rounds say of it.
        turn: of the function that was called.
        applied_key: the largest key applied so far in this ticket's cell of the window.
        quota: how many tickets the worker gets at once; None: one, as everybody.
    """
    logic, books = entries.logic, entries.books
    key = decide.key_of(header[Request.TICKET], turn.stage)
    admission = admit_to_round(
        entries,
        alive=sender.alive,
        in_time=sender.in_time,
        key=key,
        applied_key=applied_key,
        late_rounds=(sender.position - header[Request.BASE_VERSION]) // decide.MAX_STAGES,
    )
    if turn.is_update:
        entries.count_if(admission.fresh, books.staleness(0))
    closed, next_ticket, next_batches = _hand_out(
        entries, sender.alive, header=header, slot=slot, turn=turn, quota=quota
    )
    return Pushed(
        status=admission.status,
        version=sender.position,
        staleness=admission.staleness,
        next_ticket=next_ticket,
        next_batches=next_batches,
        alive=sender.alive,
        fresh=admission.fresh,
        closed=closed,
        active=entries.read(books.ACTIVE_WORKERS),
        remembered=logic.choose(admission.known, key, applied_key),
    )


def _hand_out(
    entries: Entries,
    alive: Any,
    *,
    header: Sequence[Any],
    slot: Any,
    turn: Turn,
    quota: Any = None,
) -> tuple[Any, Any, Any]:
    """Whether the ticket before is closed by this push, the next one, and how many it stands for.

    Counts the bytes, too.
    """
    closed, next_ticket, next_batches = None, NO_TICKET, 1
    if turn.hands_out:
        closed = decide.close(
            entries,
            alive=alive,
            slot=slot,
            ticket=header[Request.CLOSES],
            steps=header[Request.CLOSED_STEPS],
            examples=header[Request.EXAMPLES],
        )
        pushed = header[Request.TICKET]
        if quota is None:
            next_ticket = issuing.issue(
                entries, alive=alive, slot=slot, pushed=pushed, pipelined=turn.pipelined
            )
        else:
            next_ticket, next_batches = issuing.issue_several(
                entries, alive=alive, slot=slot, pushed=pushed, quota=quota
            )
    entries.count_traffic(received_bytes=turn.received_bytes, sent_bytes=turn.sent_bytes)
    return closed, next_ticket, next_batches
