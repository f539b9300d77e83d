"""Whether a push counts: once for each ticket, from a living worker, not too stale. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfps.consistency.ledger import STALENESS_BINS, Entries, Status


@dataclass
class Admission:
    """What a server does with a push."""

    alive: Any
    known: Any  # it came for the first time, so it need not come again
    fresh: Any  # apply it
    status: Any
    staleness: Any  # updates applied since the parameters were read


def admit(
    entries: Entries,
    *,
    alive: Any,
    key: Any,
    applied_key: Any,
    base_version: Any,
    is_update: bool,
    drop_above: int | None = None,
) -> Admission:
    """Decide on a push: once per key, only from a living worker.

    Args:
        entries: the server's books.
        alive: whether the sender takes part.
        key: ticket and stage as one growing number.
        applied_key: the largest key applied so far in this key's cell of the window.
        base_version: this server's version that the gradient was computed from.
        is_update: the push carries gradients; else only state such as moving averages.
        drop_above: the staleness above which a gradient is dropped; its ticket counts as visited.
    """
    books, logic = entries.books, entries.logic
    is_new = key > applied_key
    known = fresh = logic.both(alive, is_new)
    version = entries.read(books.VERSION)
    staleness = version - base_version
    accepted: Any = int(Status.OK)
    if drop_above is not None:
        fresh = logic.both(known, staleness <= drop_above)
        accepted = logic.choose(staleness <= drop_above, int(Status.OK), int(Status.LATE))
        entries.count(books.DROPPED, logic.choose(fresh, 0, logic.choose(known, 1, 0)))
    status = logic.choose(
        alive, logic.choose(is_new, accepted, int(Status.DUPLICATE)), int(Status.EVICTED)
    )
    entries.count_if(alive, books.EXCHANGES)
    entries.count_if(logic.both(alive, key <= applied_key), books.DUPLICATES)
    entries.count(books.DROPPED, logic.choose(alive, 0, 1))
    if is_update:
        entries.count_if(fresh, books.VERSION)
        entries.count_if(fresh, books.staleness(logic.smaller(staleness, STALENESS_BINS - 1)))
    return Admission(alive=alive, known=known, fresh=fresh, status=status, staleness=staleness)


def admit_to_round(
    entries: Entries, *, alive: Any, in_time: Any, key: Any, applied_key: Any, late_rounds: Any
) -> Admission:
    """Decide on a push to a round: late ones are dropped, repeated ones add nothing.

    Args:
        entries: the server's books.
        alive: whether the sender takes part.
        in_time: whether it was computed from the parameters of the round at hand.
        key: ticket and stage as one growing number.
        applied_key: the largest key applied so far in this key's cell of the window.
        late_rounds: by how many rounds it is late.
    """
    books, logic = entries.books, entries.logic
    is_new = key > applied_key
    known = logic.both(alive, is_new)
    fresh = logic.both(known, in_time)
    in_round = logic.choose(in_time, int(Status.OK), int(Status.LATE))
    status = logic.choose(
        alive, logic.choose(is_new, in_round, int(Status.DUPLICATE)), int(Status.EVICTED)
    )
    entries.count_if(alive, books.EXCHANGES)
    entries.count_if(logic.both(alive, key <= applied_key), books.DUPLICATES)
    dropped = logic.choose(fresh, 0, logic.choose(known, 1, logic.choose(alive, 0, 1)))
    entries.count(books.DROPPED, dropped)
    return Admission(alive=alive, known=known, fresh=fresh, status=status, staleness=late_rounds)


@dataclass
class Counted:
    """What a server does with a push without a ticket."""

    fresh: Any  # apply it
    status: Any
    version: Any  # after it
    staleness: Any


def count_update(
    entries: Entries, *, base_version: Any, drop_above: int | None = None, alive: Any = None
) -> Counted:
    """Count a push without a ticket, which is applied whenever it comes.

    Args:
        entries: the server's books.
        base_version: this server's version that the gradient was computed from.
        drop_above: the staleness above which it is dropped.
        alive: whether the sender takes part; None: it need not.
    """
    books, logic = entries.books, entries.logic
    version = entries.read(books.VERSION)
    staleness = version - base_version
    fresh: Any = True if drop_above is None else staleness <= drop_above
    status: Any = int(Status.OK)
    if drop_above is not None:
        status = logic.choose(fresh, int(Status.OK), int(Status.LATE))
    if alive is not None:
        fresh = alive if drop_above is None else logic.both(alive, fresh)
        status = logic.choose(alive, status, int(Status.EVICTED))
    entries.count_if(fresh, books.VERSION)
    entries.count(books.EXCHANGES)
    entries.count_if(fresh, books.staleness(logic.smaller(staleness, STALENESS_BINS - 1)))
    if fresh is True:
        return Counted(fresh, status, version + 1, staleness)
    entries.count(books.DROPPED, logic.choose(fresh, 0, 1))
    return Counted(fresh, status, version + logic.choose(fresh, 1, 0), staleness)


def count_contribution(entries: Entries, *, alive: Any, in_time: Any, late_rounds: Any) -> Counted:
    """Count a push without a ticket to a round; the round, when it is complete, is the update.

    Args:
        entries: the server's books.
        alive: whether the sender takes part.
        in_time: whether it was computed from the parameters of the round at hand.
        late_rounds: by how many rounds it is late.
    """
    books, logic = entries.books, entries.logic
    fresh = logic.both(alive, in_time)
    in_round = logic.choose(in_time, int(Status.OK), int(Status.LATE))
    entries.count(books.EXCHANGES)
    entries.count(books.DROPPED, logic.choose(fresh, 0, 1))
    entries.count_if(fresh, books.staleness(0))
    status = logic.choose(alive, in_round, int(Status.EVICTED))
    return Counted(fresh, status, entries.read(books.VERSION), late_rounds)
