"""Decides about a push: its admission, and the sender's next ticket. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tfps.consistency import issuing
from tfps.consistency import ledger as decide
from tfps.consistency.admission import admit, all_hold, choose_value
from tfps.consistency.applied_window import cell_of_function, cell_of_ticket
from tfps.consistency.ledger import NO_TICKET, STALENESS_BINS, Ledger, Status
from tfps.consistency.pace import pace_after
from tfps.transport.message import Request


class AdmitAll:
    """Admits every push, also the coordinator's, since no worker waits for another.

    Attributes:
        knows_senders: only workers that take part may push.
        has_keys: each push is applied once, whatever its sender repeats.
        has_tickets: pushes are steps of `fit`, whose tickets the servers know.
        checks_versions: a push may name a version that the server has not reached.
    """

    knows_senders: ClassVar[bool] = False
    has_keys: ClassVar[bool] = False
    has_tickets: ClassVar[bool] = False
    checks_versions: ClassVar[bool] = False

    def get_key(self, ticket: Any) -> Any:
        """Return the growing number that identifies a push, or None if pushes have none."""
        return None

    def get_cell(self, ticket: Any) -> Any:
        """Return the ledger cell of the largest applied number; called only if `has_keys`."""
        raise NotImplementedError

    def issue(self, ledger: Ledger, arrival: ReceivedPush) -> tuple[Any, Any]:
        """Return whether the push closes the previous ticket (None: never), and the next ticket."""
        return None, NO_TICKET


class AdmitByVersion(AdmitAll):
    """Admits a push if the server has reached the version that the user has named in it."""

    checks_versions: ClassVar[bool] = True


class AdmitByFunction(AdmitAll):
    """Admits each optimizer call of a scheduled function once, even if the function runs again."""

    has_keys: ClassVar[bool] = True

    def get_key(self, ticket: Any) -> Any:
        return ticket

    def get_cell(self, ticket: Any) -> Any:
        return cell_of_function(ticket)


class AdmitByMember(AdmitByFunction):
    """Admits calls as `AdmitByFunction` does, but only from members, since others wait for them."""

    knows_senders: ClassVar[bool] = True


@dataclass(frozen=True)
class AdmitByTicket(AdmitAll):
    """Admits the push of each ticket of `fit` once, from the worker that holds the ticket."""

    call_number: int  # the index of the optimizer call in the step
    issues_tickets: bool  # the ticket server's last call: closes a ticket, issues the next

    knows_senders: ClassVar[bool] = True
    has_keys: ClassVar[bool] = True
    has_tickets: ClassVar[bool] = True

    def get_key(self, ticket: Any) -> Any:
        return decide.key_of(ticket, self.call_number)

    def get_cell(self, ticket: Any) -> Any:
        return cell_of_ticket(ticket)

    def issue(self, ledger: Ledger, arrival: ReceivedPush) -> tuple[Any, Any]:
        if not self.issues_tickets:
            return None, NO_TICKET
        closed = close_acked(ledger, arrival.header, alive=arrival.alive, worker=arrival.worker)
        cell, logic = ledger.layout.pace(arrival.worker), ledger.logic
        took = arrival.header[Request.BATCH_MICROSECONDS]
        ledger.write_if(arrival.alive, cell, pace_after(ledger.read(cell), took, logic=logic))
        return closed, issuing.issue(
            ledger,
            alive=arrival.alive,
            worker=arrival.worker,
            pushed=arrival.header[Request.TICKET],
        )


def close_acked(ledger: Ledger, header: Any, *, alive: Any, worker: Any) -> Any:
    """Close a ticket whose push has all replies, and return whether its step is counted now."""
    return decide.close(
        ledger,
        alive=alive,
        worker=worker,
        ticket=header[Request.ACKED_TICKET],
        steps=header[Request.CLOSED_STEPS],
        examples=header[Request.EXAMPLES],
    )


@dataclass(frozen=True)
class PushTerms:
    """The settings of a push that are known when its server function is traced."""

    admission: AdmitAll  # which pushes count
    is_update: bool  # whether pushes carry gradients; else only state such as moving averages
    counts_as_update: bool = True  # whether the server's count of updates grows
    in_rounds: bool = False  # whether the round, when it is complete, counts as the update
    workers: int = 1  # the number of workers
    drop_above: int | None = None  # gradients of a larger staleness are dropped; None: none are


@dataclass(frozen=True)
class ReceivedPush:
    """A push that a server has received."""

    header: Sequence[Any]  # the fields of the request's header
    worker: Any  # the worker's index, in the type that the ledger expects
    matches_plan: Any  # whether the request was made for this server function
    alive: Any  # whether the sender takes part; True where it need not
    # The largest key applied so far in this push's cell of the window, if pushes have keys.
    applied_key: Any = None
    # Whether its parameters came from the current round; True without rounds.
    in_time: Any = True
    position: Any = None  # the server's position in its rounds; None without rounds
    contribution: Any = None  # the push as the round gate knows it


@dataclass(frozen=True)
class PushVerdict:
    """The decision about a push."""

    status: Any
    version: Any  # after the push
    staleness: Any
    fresh: Any  # whether to apply it
    closed: Any  # whether to count the report of the step before; None: this server takes none
    next_ticket: Any  # of the worker
    workers: Any  # the number of workers among which the state that comes with it is averaged
    new_applied_key: Any  # the largest key applied in this push's cell of the window


def decide_push(ledger: Ledger, terms: PushTerms, arrival: ReceivedPush) -> PushVerdict:
    """Decide about a push: admit it, close the previous ticket, issue the next, and count."""
    logic, layout, header = ledger.logic, ledger.layout, arrival.header
    base_version = header[Request.BASE_VERSION]
    key = terms.admission.get_key(header[Request.TICKET])
    is_new = True if key is None else key > arrival.applied_key
    is_reached: Any = True
    if terms.in_rounds:
        version, staleness_bin = arrival.position, 0
        staleness = (version - base_version) // decide.MAX_CALLS
    else:
        version = ledger.read(layout.VERSION)
        staleness = version - base_version
        staleness_bin = logic.minimum(staleness, STALENESS_BINS - 1)
        if terms.admission.checks_versions:
            is_reached = staleness >= 0
            staleness_bin = logic.choose(is_reached, staleness_bin, 0)
    in_time = arrival.in_time if terms.drop_above is None else staleness <= terms.drop_above
    counts_update = terms.counts_as_update and not terms.in_rounds
    admitted = admit(
        ledger,
        alive=all_hold(logic, arrival.alive, is_reached),
        is_new=is_new,
        in_time=in_time,
        counts_update=counts_update,
        staleness_bin=staleness_bin if terms.is_update else None,
    )
    closed, next_ticket = terms.admission.issue(ledger, arrival)
    if counts_update:
        version = version + choose_value(logic, admitted.fresh, 1, 0)
    status = choose_value(logic, is_reached, admitted.status, int(Status.AHEAD))
    return PushVerdict(
        status=choose_value(logic, arrival.matches_plan, status, int(Status.REPLAN)),
        version=version,
        staleness=staleness,
        fresh=admitted.fresh,
        closed=closed,
        next_ticket=next_ticket,
        workers=(
            ledger.read(layout.ACTIVE_WORKERS) if terms.admission.has_tickets else terms.workers
        ),
        new_applied_key=None
        if key is None
        else logic.choose(admitted.known, key, arrival.applied_key),
    )
