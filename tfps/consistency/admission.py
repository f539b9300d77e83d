"""The admission of a push: once for each ticket, from a living worker, in time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfps.consistency.ledger import Ledger, Status
from tfps.consistency.logic import Logic

NONE = 0  # the number of dropped gradients


@dataclass(frozen=True)
class Admission:
    """The decision about a push."""

    known: Any  # it has come for the first time and need not come again
    fresh: Any  # whether to apply it
    status: Any


def admit(
    ledger: Ledger,
    *,
    alive: Any,
    is_new: Any,
    in_time: Any,
    counts_update: bool,
    staleness_bin: Any | None,
) -> Admission:
    """Decide about a push, and count it; a condition that is True holds for every push.

    Args:
        ledger: the ledger of the server.
        alive: whether the sender takes part.
        is_new: whether the push has not been applied before.
        in_time: whether its gradients are not too old.
        counts_update: whether a fresh push is an update of the server's variables by itself.
        staleness_bin: the bin in which its staleness is counted; None: it has no gradients.
    """
    layout, logic = ledger.layout, ledger.logic
    known = all_hold(logic, alive, is_new)
    fresh = all_hold(logic, known, in_time)
    accepted = choose_value(logic, in_time, int(Status.OK), int(Status.LATE))
    status = choose_value(logic, is_new, accepted, int(Status.DUPLICATE))
    status = choose_value(logic, alive, status, int(Status.EVICTED))
    ledger.count_if(alive, layout.EXCHANGES)
    if is_new is not True:
        ledger.count_if(alive, layout.DUPLICATES, logic.choose(is_new, 0, 1))
    dropped = choose_value(logic, in_time, NONE, choose_value(logic, is_new, 1, NONE))
    dropped = choose_value(logic, alive, dropped, 1)
    if dropped is not NONE:
        ledger.count(layout.DROPPED, dropped)
    if counts_update:
        ledger.count_if(fresh, layout.VERSION)
    if staleness_bin is not None:
        ledger.count_if(fresh, layout.staleness(staleness_bin))
    return Admission(known=known, fresh=fresh, status=status)


def all_hold(logic: Logic, *conditions: Any) -> Any:
    """Return whether all conditions hold; True ones need no operation."""
    result: Any = True
    for condition in conditions:
        if condition is not True:
            result = condition if result is True else logic.logical_and(result, condition)
    return result


def choose_value(logic: Logic, condition: Any, if_true: Any, if_false: Any) -> Any:
    """Return one of two values; the first, without an operation, if the condition is True."""
    return if_true if condition is True else logic.choose(condition, if_true, if_false)
