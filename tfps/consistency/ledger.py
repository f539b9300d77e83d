"""The ledger of one server: who is in, which tickets are out, what was applied.

Every decision of a server is made here, on cells of one integer vector, with arithmetic that works
on Python integers and on tensors alike. No TensorFlow: property tests run the same code that the
servers run.

A *ticket* is the right to one worker step on one batch. Server 0 hands tickets out; the next one
rides on the reply to a push. A ticket stays with its worker until the worker's *next* request,
which proves that every server has answered the previous one. When a worker is lost, all its
tickets go back, another worker repeats them, and servers that had applied one answer `duplicate`.
So each ticket is applied once on every server, and closed (its metrics and examples counted) once.

A worker that takes several batches for one push (see `quota`) gets as many consecutive tickets at
once. They go by the first of them, and stay together until they are closed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfps.consistency.histogram import DURATION_BINS
from tfps.consistency.logic import Logic

NO_TICKET = -1
# The incarnations of workers that a chief can hand out; those of the next one are larger.
TERM_INCARNATIONS = 1 << 32
# Optimizer calls of one step; a growing number (ticket, call) is ticket * 16 + call_number.
MAX_CALLS = 16
NEVER = 1 << 50  # larger than any round; stands for those who take no part in rounds
NOTHING = -1  # wanted by those that do not wait
CODED_GROUPS = 16  # whose bytes are counted apart
STALENESS_BINS = 64  # the last bin collects everything above; optimizers get the exact number


class Status(enum.IntEnum):
    """How a server answers; up to `DUPLICATE` the sender still takes part."""

    OK = 0
    LATE = 1
    DUPLICATE = 2
    EVICTED = 3
    REPLAN = 4
    LOST = 5  # the worker's own side says so: no answer came
    AHEAD = 6  # the push names a version that the server has not reached


def takes_part(status: Any) -> Any:
    """Whether a server that answers so has done what its sender asked for, now or before."""
    return status <= Status.DUPLICATE


def _cells_from(multiple: int) -> Callable[[LedgerLayout, Any], Any]:
    """Return the field whose cells follow that many cells of each worker."""

    def cell(layout: LedgerLayout, index: Any) -> Any:
        return layout.GLOBALS + multiple * layout.workers + index

    return cell


@dataclass(frozen=True)
class LedgerLayout:
    """Where each field lies in the vector: a cell for the server, or one for each worker.

    Args:
        workers: how many workers can take part.
    """

    workers: int

    SCRATCH = 0  # takes the writes that a condition forbids
    VERSION = 1  # updates applied
    NEXT = 2  # the next ticket that was never handed out
    LIMIT = 3  # tickets from here on are not handed out
    RETURNED = 4  # how many tickets came back from lost workers
    COMPLETED = 5  # steps of closed tickets
    EXAMPLES = 6  # training examples of closed tickets
    EXCHANGES = 7  # joins, pulls, pushes and look-ups answered
    DUPLICATES = 8  # pushes of a ticket that was applied already
    DROPPED = 9  # gradients refused: late, or of an evicted worker
    ACTIVE_WORKERS = 10
    BYTES_RECEIVED = 11  # payloads of requests
    BYTES_SENT = 12  # payloads of replies
    LARGEST_GAP = 13  # by which a worker was ahead of the slowest when it started a step
    POSITION = 14  # of the server in its rounds; see `rounds`
    FENCE = 15  # the newest snapshot or restore; what is left of an older one does nothing
    TERM = 16  # of the chief that the server obeys; larger with each one that takes the job over
    MESSAGES = 17  # requests answered, of every kind
    OTHER_WRITES = 18  # updates and assignments that no step of `fit` has made
    APART = 19  # of the updates: those that only other servers have made; see `count_up_to`
    MOVE = 20  # of the limit, the newest; an older one, which may come late, does nothing
    EXPECTATION = 21  # of workers that will join, the newest; as `MOVE`
    GLOBALS = 22

    # A cell for each worker, by its index; of what came back a cell for each ticket.
    active = _cells_from(0)
    incarnation = _cells_from(1)
    held = _cells_from(2)  # the ticket that the worker computes
    unclosed = _cells_from(3)  # the ticket that it pushed last
    ahead = _cells_from(4)  # the one that it computes next, while the held one is on its way
    steps = _cells_from(5)
    evaluation_steps = _cells_from(6)
    returned = _cells_from(7)
    clock = _cells_from(10)  # steps that the worker has completed, as the gate counts them
    waiting = _cells_from(11)  # 1 while the worker waits at the gate
    begins = _cells_from(12)  # the first round that the worker takes part in
    contributed = _cells_from(13)  # 1 while the worker's gradient is in the round at hand
    wanted = _cells_from(14)  # the position in the rounds that the worker waits for
    # How many tickets these stand for, of workers that take several at once.
    held_batches = _cells_from(15)
    unclosed_batches = _cells_from(16)
    returned_batches = _cells_from(17)
    pace = _cells_from(20)  # microseconds that the worker takes for a batch; see `quota`

    @property
    def most_returned(self) -> int:
        """How many tickets can have come back: a worker has three at most."""
        return 3 * self.workers

    @property
    def histograms(self) -> int:
        return self.GLOBALS + 21 * self.workers

    def staleness(self, updates: Any) -> Any:
        return self.histograms + updates

    def staleness_counts(self, cells: Any) -> dict[int, int]:
        """Return the number of gradients by their staleness, where there are any.

        Args:
            cells: of a ledger.
        """
        counts = cells[self.staleness(0) : self.staleness(STALENESS_BINS)]
        return {value: int(count) for value, count in enumerate(counts) if count}

    def duration(self, kind: Any, bin_index: Any) -> Any:
        """``kind``: 0 push, 1 pull, 2 wait for data, 3 update, 4 encode, 5 decode."""
        return self.histograms + STALENESS_BINS + kind * DURATION_BINS + bin_index

    def coded(self, group_number: Any, *, is_plain: Any) -> Any:
        """Bytes of what a codec has coded: as they were sent, or (1) as they were before."""
        begin = self.histograms + STALENESS_BINS + 6 * DURATION_BINS
        return begin + 2 * group_number + is_plain

    @property
    def size(self) -> int:
        return int(self.coded(CODED_GROUPS, is_plain=0))

    def blank(self) -> list[int]:
        """The ledger of a new server."""
        cells = [0] * self.size
        for worker in range(self.workers):
            for field in (self.held, self.unclosed, self.ahead):
                cells[field(worker)] = NO_TICKET
            cells[self.begins(worker)], cells[self.wanted(worker)] = NEVER, NOTHING
        return cells


class Ledger:
    """The ledger in the hands of a decision, whose changes are made at once after all was decided.

    A cell is either written, and then once, or added to; what is read is always the cell before.

    Args:
        layout: of the ledger.
        read: the value of a cell.
        logic: arithmetic on those values.
    """

    def __init__(self, *, layout: LedgerLayout, read: Callable[[Any], Any], logic: Logic) -> None:
        self.layout, self.read, self.logic = layout, read, logic
        self.writes: list[tuple[Any, Any]] = []
        self.additions: list[tuple[Any, Any, Any]] = []  # (condition, cell, amount)

    def write(self, cell: Any, value: Any) -> None:
        self.writes.append((cell, value))

    def write_if(self, condition: Any, cell: Any, value: Any) -> None:
        self.writes.append((self.logic.choose(condition, cell, self.layout.SCRATCH), value))

    def count_if(self, condition: Any, cell: Any, amount: Any = 1) -> None:
        self.additions.append((condition, cell, amount))

    def count(self, cell: Any, amount: Any = 1) -> None:
        self.count_if(True, cell, amount)

    def count_traffic(
        self, *, received_bytes: Any, sent_bytes: Any, coded: Sequence[tuple[int, int, int]] = ()
    ) -> None:
        """Add a request and its reply.

        Args:
            received_bytes: the request's payload.
            sent_bytes: the reply's payload.
            coded: of what codecs have coded in both, the number of a group, the bytes as they were
                sent, and as they were before.
        """
        self.count(self.layout.MESSAGES)
        self.count(self.layout.BYTES_RECEIVED, received_bytes)
        self.count(self.layout.BYTES_SENT, sent_bytes)
        for group_number, sent, plain in coded:
            self.count(self.layout.coded(group_number, is_plain=0), sent)
            self.count(self.layout.coded(group_number, is_plain=1), plain)

    def is_alive(self, worker: Any, incarnation: Any) -> Any:
        """Whether the sender is the worker that the server knows under this worker."""
        return self.logic.both(
            self.read(self.layout.active(worker)) == 1,
            self.read(self.layout.incarnation(worker)) == incarnation,
        )


def key_of(ticket: Any, call_number: Any) -> Any:
    """Ticket and call as one growing number."""
    return ticket * MAX_CALLS + call_number


def close(
    ledger: Ledger, *, alive: Any, worker: Any, ticket: Any, steps: Any, examples: Any
) -> Any:
    """Close the ticket that a worker pushed before; answers whether it is counted now."""
    layout, logic = ledger.layout, ledger.logic
    closed = logic.both(
        logic.both(alive, ticket >= 0), ledger.read(layout.unclosed(worker)) == ticket
    )
    ledger.count_if(closed, layout.COMPLETED, steps)
    ledger.count_if(closed, layout.EXAMPLES, examples)
    ledger.count_if(closed, layout.steps(worker), steps)
    return closed


def enter(ledger: Ledger, *, worker: Any, incarnation: Any) -> Any:
    """Let a worker in; an older incarnation than the one known stays out.

    It must have no ticket: `remove` runs first, in a request of its own.
    """
    layout, logic = ledger.layout, ledger.logic
    newer = incarnation > ledger.read(layout.incarnation(worker))
    was_active = ledger.read(layout.active(worker)) == 1
    ledger.write_if(newer, layout.active(worker), 1)
    ledger.write_if(newer, layout.incarnation(worker), incarnation)
    ledger.count_if(newer, layout.ACTIVE_WORKERS, logic.choose(was_active, 0, 1))
    ledger.count_if(newer, layout.EXCHANGES)
    return newer


def remove(ledger: Ledger, *, worker: Any, leaves: Any, closed: Any) -> None:
    """Let a worker out; the tickets left with it go back to be handed out again.

    Args:
        ledger: of the server.
        worker: its index.
        leaves: whether it is let out at all.
        closed: whether the ticket that it pushed last was closed by this very request.
    """
    layout, logic = ledger.layout, ledger.logic
    was_active = logic.both(leaves, ledger.read(layout.active(worker)) == 1)
    position = ledger.read(layout.RETURNED)
    unclosed, held_batches = layout.unclosed(worker), layout.held_batches(worker)
    for field, together in (
        (layout.held(worker), held_batches),
        (layout.ahead(worker), held_batches),  # never several: nothing is pipelined then
        (unclosed, layout.unclosed_batches(worker)),
    ):
        ticket = ledger.read(field)
        returns = logic.both(leaves, ticket >= 0)
        if field is unclosed:
            returns = logic.both(returns, logic.choose(closed, 0, 1) == 1)
        ledger.write_if(returns, layout.returned(position), ticket)
        ledger.write_if(returns, layout.returned_batches(position), ledger.read(together))
        ledger.count_if(returns, layout.RETURNED)
        position = position + logic.choose(returns, 1, 0)
        ledger.write_if(leaves, field, NO_TICKET)
    ledger.write_if(leaves, layout.active(worker), 0)
    ledger.count_if(was_active, layout.ACTIVE_WORKERS, -1)


def evict(ledger: Ledger, *, worker: Any, incarnation: Any) -> Any:
    """Let a lost worker out and keep it out; answers whether it was the one known.

    Also when it has not joined yet: its request to join may still be on its way.
    """
    layout = ledger.layout
    known = ledger.read(layout.incarnation(worker))
    applies = incarnation >= known
    remove(ledger, worker=worker, leaves=applies, closed=incarnation < 0)
    ledger.write_if(applies, layout.incarnation(worker), incarnation)
    return applies


def finish(ledger: Ledger, *, alive: Any, worker: Any, ticket: Any) -> Any:
    """Close an evaluation ticket at once: nothing was pushed, so no other server need know."""
    layout, logic = ledger.layout, ledger.logic
    done = logic.both(alive, ledger.read(layout.held(worker)) == ticket)
    ledger.count_if(done, layout.COMPLETED)
    ledger.count_if(done, layout.evaluation_steps(worker))
    return done
