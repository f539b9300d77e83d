"""What a push does to a server's ledger, from admission to the next ticket. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tfps.consistency import issuing
from tfps.consistency import ledger as decide
from tfps.consistency.admission import admit, either, every
from tfps.consistency.applied_window import cell_of_function, cell_of_ticket
from tfps.consistency.issuing import NO_GRANT, TicketGrant
from tfps.consistency.ledger import STALENESS_BINS, Ledger, Status
from tfps.transport.message import Request


class Anyone:
    """Every push counts, the coordinator's too: nobody waits for who has sent it.

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

    def key(self, ticket: Any) -> Any:
        """The number of a push, which grows; None where they have none."""
        return None

    def cell(self, ticket: Any) -> Any:
        """Where the largest of some pushes' numbers is remembered; called where they have any."""
        raise NotImplementedError

    def grant(self, ledger: Ledger, arrival: Arrival) -> tuple[Any, TicketGrant]:
        """Whether the push closes the ticket before it (None: never), and the next tickets."""
        return None, NO_GRANT


class ByVersion(Anyone):
    """Every push counts that names a version which the server has reached: users name it."""

    checks_versions: ClassVar[bool] = True


class ByFunction(Anyone):
    """Each optimizer call of a scheduled function counts once, whoever runs it again."""

    has_keys: ClassVar[bool] = True

    def key(self, ticket: Any) -> Any:
        return ticket

    def cell(self, ticket: Any) -> Any:
        return cell_of_function(ticket)


class ByMember(ByFunction):
    """The same where only workers that take part may push, since others wait for them."""

    knows_senders: ClassVar[bool] = True


@dataclass(frozen=True)
class ByTicket(Anyone):
    """Each ticket counts once, from the worker that has it: a step of a program of `fit`."""

    call_number: int  # which of the step's optimizer calls
    hands_out: bool  # the last one on the ticket server: closes a ticket and hands out the next
    pipelined: bool = False  # workers compute a step while the one before is on its way

    knows_senders: ClassVar[bool] = True
    has_keys: ClassVar[bool] = True
    has_tickets: ClassVar[bool] = True

    def key(self, ticket: Any) -> Any:
        return decide.key_of(ticket, self.call_number)

    def cell(self, ticket: Any) -> Any:
        return cell_of_ticket(ticket)

    def grant(self, ledger: Ledger, arrival: Arrival) -> tuple[Any, TicketGrant]:
        if not self.hands_out:
            return None, NO_GRANT
        closed = close_acked(ledger, arrival.header, alive=arrival.alive, worker=arrival.worker)
        return closed, issuing.issue(
            ledger,
            alive=arrival.alive,
            worker=arrival.worker,
            pushed=arrival.header[Request.TICKET],
            quota=arrival.quota,
            pipelined=self.pipelined,
        )


def close_acked(ledger: Ledger, header: Any, *, alive: Any, worker: Any) -> Any:
    """Close the ticket whose push all servers have answered; answers whether it is counted now."""
    return decide.close(
        ledger,
        alive=alive,
        worker=worker,
        ticket=header[Request.ACKED_TICKET],
        steps=header[Request.CLOSED_STEPS],
        examples=header[Request.EXAMPLES],
    )


@dataclass(frozen=True)
class Terms:
    """What a server function knows of a push before it comes."""

    admission: Anyone  # whose pushes count
    is_update: bool  # they carry gradients; else only state such as moving averages
    in_rounds: bool = False  # the round, when it is complete, counts as the update
    workers: int = 1  # how many there are
    drop_above: int | None = None  # the staleness above which gradients are dropped; None: none are


@dataclass(frozen=True)
class Arrival:
    """A push that has come."""

    header: Sequence[Any]  # of the request, field by field
    worker: Any  # the worker, as the ledger wants it
    is_ours: Any  # whether the request was made for this server function
    alive: Any  # whether the sender takes part; True where it need not
    is_worker: Any = True  # whether it is a worker, for who may be the coordinator as well
    # The largest key applied so far in this push's cell of the window, if pushes have keys.
    applied_key: Any = None
    quota: Any = None  # how many tickets the worker gets at once; None: one, as everybody
    # Whether its parameters came from the round at hand; True where there are none.
    in_time: Any = True
    position: Any = None  # of the server in its rounds; None where there are none
    contribution: Any = None  # what it is to the rounds, as their gate knows it


@dataclass(frozen=True)
class PushVerdict:
    """What follows from a push."""

    status: Any
    version: Any  # after it
    staleness: Any
    fresh: Any  # apply it
    closed: Any  # count the report of the step before; None: this server takes none
    grant: TicketGrant
    workers: Any  # of how many the state that comes with it is one opinion
    remembered: Any  # the largest key applied in this push's cell of the window


def judge(ledger: Ledger, terms: Terms, arrival: Arrival) -> PushVerdict:
    """Admit a push, close the ticket before it, hand out the next, and count."""
    logic, layout, header = ledger.logic, ledger.layout, arrival.header
    base_version = header[Request.BASE_VERSION]
    key = terms.admission.key(header[Request.TICKET])
    is_new = True if key is None else key > arrival.applied_key
    is_reached: Any = True
    if terms.in_rounds:
        version, staleness_bin = arrival.position, 0
        staleness = (version - base_version) // decide.MAX_CALLS
    else:
        version = ledger.read(layout.VERSION)
        staleness = version - base_version
        staleness_bin = logic.smaller(staleness, STALENESS_BINS - 1)
        if terms.admission.checks_versions:
            is_reached = staleness >= 0
            staleness_bin = logic.choose(is_reached, staleness_bin, 0)
    in_time = arrival.in_time if terms.drop_above is None else staleness <= terms.drop_above
    counts_update = terms.is_update and not terms.in_rounds
    admitted = admit(
        ledger,
        alive=every(logic, arrival.alive, is_reached),
        is_new=is_new,
        in_time=in_time,
        counts_update=counts_update,
        staleness_bin=staleness_bin if terms.is_update else None,
    )
    closed, grant = terms.admission.grant(ledger, arrival)
    if counts_update:
        version = version + either(logic, admitted.fresh, 1, 0)
    status = either(logic, is_reached, admitted.status, int(Status.AHEAD))
    return PushVerdict(
        status=either(logic, arrival.is_ours, status, int(Status.REPLAN)),
        version=version,
        staleness=staleness,
        fresh=admitted.fresh,
        closed=closed,
        grant=grant,
        workers=(
            ledger.read(layout.ACTIVE_WORKERS) if terms.admission.has_tickets else terms.workers
        ),
        remembered=None if key is None else logic.choose(admitted.known, key, arrival.applied_key),
    )
