"""The ledger of one server: active workers, issued tickets and applied pushes.

Every decision of a server is made here, on cells of one integer vector, with arithmetic that works
on Python integers and on tensors alike. No TensorFlow: property tests run the same code as the
servers.

A *ticket* is the right to one worker step on one batch. Server 0 issues tickets; the reply to a
push brings the next one. A ticket stays with its worker until the worker's *next* request, which
proves that every server has replied to the previous one. When a worker is lost, all its tickets go
back, and another worker repeats them; servers that had applied one reply `DUPLICATE`. So each
ticket is applied once on every server, and closed (its metrics and examples counted) once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfps.consistency.histogram import DURATION_BINS
from tfps.consistency.logic import Logic

NO_TICKET = -1
# The number of incarnations that a chief can issue; those of the next chief are larger.
TERM_INCARNATIONS = 1 << 32
# Optimizer calls of one step; a growing number (ticket, call) is ticket * 16 + call_number.
MAX_CALLS = 16
NEVER = 1 << 50  # larger than any round; for workers that take no part in rounds
NOTHING = -1  # `wanted` of workers that do not wait
CODED_GROUPS = 16  # groups whose bytes are counted separately
STALENESS_BINS = 64  # the last bin collects everything above; optimizers get the exact number


class Status(enum.IntEnum):
    """The status in a server's reply; up to `DUPLICATE` the sender still takes part."""

    OK = 0
    LATE = 1
    DUPLICATE = 2
    EVICTED = 3
    REPLAN = 4
    LOST = 5  # set by the worker's own side: no reply came
    AHEAD = 6  # the push names a version that the server has not reached


def takes_part(status: Any) -> Any:
    """Return whether a server with this status has applied the request, now or before."""
    return status <= Status.DUPLICATE


def _worker_field(multiple: int) -> Callable[[LedgerLayout, Any], Any]:
    """Return a field with a cell for each worker, after ``multiple`` such fields."""

    def cell(layout: LedgerLayout, index: Any) -> Any:
        return layout.GLOBALS + multiple * layout.workers + index

    return cell


@dataclass(frozen=True)
class LedgerLayout:
    """The place of each field in a ledger's vector: one cell, or one for each worker.

    Args:
        workers: the most workers that can take part.
    """

    workers: int

    SCRATCH = 0  # takes the writes that a condition forbids
    VERSION = 1  # updates applied
    NEXT = 2  # the next new ticket
    LIMIT = 3  # tickets from this number on are not issued
    RETURNED = 4  # the number of tickets that came back from lost workers
    COMPLETED = 5  # steps of closed tickets
    EXAMPLES = 6  # training examples of closed tickets
    EXCHANGES = 7  # replies to joins, pulls, pushes and look-ups
    DUPLICATES = 8  # pushes of a ticket that was applied already
    DROPPED = 9  # refused gradients: late, or of an evicted worker
    ACTIVE_WORKERS = 10
    BYTES_RECEIVED = 11  # payloads of requests
    BYTES_SENT = 12  # payloads of replies
    LARGEST_GAP = 13  # the largest lead over the slowest worker at the start of a step
    POSITION = 14  # the server's position in its rounds; see `rounds`
    FENCE = 15  # the newest snapshot or restore; operations of older ones do nothing
    TERM = 16  # the term of the chief that the server obeys; it grows with each takeover
    MESSAGES = 17  # requests with a reply, of every kind
    OTHER_WRITES = 18  # updates and assignments that are not steps of `fit`
    APART = 19  # updates that only other servers have made; see `count_up_to`
    MOVE = 20  # the newest change of the limit; an older one that comes late does nothing
    EXPECTATION = 21  # the newest expectation of workers; like `MOVE`
    # Of workers that add up gradients among themselves; see `RoundGate.regroup`.
    GENERATION = 22  # the number of their group, which grows with each change of its members
    IS_GROUPED = 23  # 1 if the worker that joined last did so for a group
    VOIDED = 24  # 1 + the position of the round that was given up last
    # Updates of mirrored weights; their copies on workers have the number of server 0. On others
    # it is the number up to which optimizers have counted; see `UpdateCounts`.
    REDUCED = 25
    HOME = 26  # the number of the values that the servers hold
    REPEATED = 27  # rounds that were given up, since a member was lost or came back
    REDUCED_BYTES = 28  # what workers have sent to each other for their sums
    GLOBALS = 29

    # Fields with a cell for each worker, by its index; `returned` has one for each ticket.
    active = _worker_field(0)
    incarnation = _worker_field(1)
    held = _worker_field(2)  # the ticket that the worker computes
    unclosed = _worker_field(3)  # the ticket that it pushed last
    steps = _worker_field(4)
    evaluation_steps = _worker_field(5)
    returned = _worker_field(6)
    clock = _worker_field(8)  # completed steps, as the gate counts them
    waiting = _worker_field(9)  # 1 while the worker waits at the gate
    begins = _worker_field(10)  # the first round in which the worker takes part
    contributed = _worker_field(11)  # 1 while the worker's gradient is in the current round
    wanted = _worker_field(12)  # the position in the rounds for which the worker waits
    pace = _worker_field(13)  # the worker's own microseconds per batch; see `pace_after`

    @property
    def most_returned(self) -> int:
        """The largest number of tickets that can have come back; a worker has at most two."""
        return 2 * self.workers

    @property
    def histograms(self) -> int:
        return self.GLOBALS + 14 * self.workers

    def staleness(self, updates: Any) -> Any:
        return self.histograms + updates

    def staleness_counts(self, cells: Any) -> dict[int, int]:
        """Return the number of gradients for each staleness; those without gradients are left out.

        The last one, ``STALENESS_BINS - 1``, also counts all that are larger.

        Args:
            cells: the cells of a ledger.
        """
        counts = cells[self.staleness(0) : self.staleness(STALENESS_BINS)]
        return {value: int(count) for value, count in enumerate(counts) if count}

    def duration(self, kind: Any, bin_index: Any) -> Any:
        """Return a cell by ``kind``: push, pull, data wait, update, encode, decode, reduce."""
        return self.histograms + STALENESS_BINS + kind * DURATION_BINS + bin_index

    def coded(self, group_number: Any, *, is_plain: Any) -> Any:
        """Return the cell of a group's encoded bytes, or with ``is_plain`` 1 of its plain bytes."""
        begin = self.histograms + STALENESS_BINS + 7 * DURATION_BINS
        return begin + 2 * group_number + is_plain

    @property
    def size(self) -> int:
        return int(self.coded(CODED_GROUPS, is_plain=0))

    def make_blank_cells(self) -> list[int]:
        """Return the ledger of a new server."""
        cells = [0] * self.size
        for worker in range(self.workers):
            for field in (self.held, self.unclosed):
                cells[field(worker)] = NO_TICKET
            cells[self.begins(worker)], cells[self.wanted(worker)] = NEVER, NOTHING
        return cells


class Ledger:
    """The ledger during a decision; all changes are made together after it.

    A cell is either written, and then once, or added to. Reads return the value before the changes.

    Args:
        layout: the layout of the ledger.
        read: returns the value of a cell.
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
        """Count a request and its reply.

        Args:
            received_bytes: the request's payload.
            sent_bytes: the reply's payload.
            coded: for encoded parts of both, the number of the group, the encoded bytes, and the
                bytes before encoding.
        """
        self.count(self.layout.MESSAGES)
        self.count(self.layout.BYTES_RECEIVED, received_bytes)
        self.count(self.layout.BYTES_SENT, sent_bytes)
        for group_number, sent, plain in coded:
            self.count(self.layout.coded(group_number, is_plain=0), sent)
            self.count(self.layout.coded(group_number, is_plain=1), plain)

    def is_alive(self, worker: Any, incarnation: Any) -> Any:
        """Return whether this incarnation of the worker takes part."""
        return self.logic.logical_and(
            self.read(self.layout.active(worker)) == 1,
            self.read(self.layout.incarnation(worker)) == incarnation,
        )


def key_of(ticket: Any, call_number: Any) -> Any:
    """Return a growing number from a ticket and a call."""
    return ticket * MAX_CALLS + call_number


def close(
    ledger: Ledger, *, alive: Any, worker: Any, ticket: Any, steps: Any, examples: Any
) -> Any:
    """Close the ticket that a worker pushed before. Returns whether it is counted now."""
    layout, logic = ledger.layout, ledger.logic
    closed = logic.logical_and(
        logic.logical_and(alive, ticket >= 0), ledger.read(layout.unclosed(worker)) == ticket
    )
    ledger.count_if(closed, layout.COMPLETED, steps)
    ledger.count_if(closed, layout.EXAMPLES, examples)
    ledger.count_if(closed, layout.steps(worker), steps)
    return closed


def enter(ledger: Ledger, *, worker: Any, incarnation: Any) -> Any:
    """Let a worker join, unless its incarnation is older than the known one.

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
    """Remove a worker; its tickets go back and are issued again.

    Args:
        ledger: the ledger of the server.
        worker: the worker's index.
        leaves: whether it is removed at all.
        closed: whether this request has closed the ticket that it pushed last.
    """
    layout, logic = ledger.layout, ledger.logic
    was_active = logic.logical_and(leaves, ledger.read(layout.active(worker)) == 1)
    position = ledger.read(layout.RETURNED)
    unclosed = layout.unclosed(worker)
    for field in (layout.held(worker), unclosed):
        ticket = ledger.read(field)
        returns = logic.logical_and(leaves, ticket >= 0)
        if field is unclosed:
            returns = logic.logical_and(returns, logic.choose(closed, 0, 1) == 1)
        ledger.write_if(returns, layout.returned(position), ticket)
        ledger.count_if(returns, layout.RETURNED)
        position = position + logic.choose(returns, 1, 0)
        ledger.write_if(leaves, field, NO_TICKET)
    ledger.write_if(leaves, layout.active(worker), 0)
    ledger.count_if(was_active, layout.ACTIVE_WORKERS, -1)


def evict(ledger: Ledger, *, worker: Any, incarnation: Any) -> Any:
    """Remove a lost worker and refuse it from now on. Returns False if a newer one is known.

    Also if it has not joined yet: its request to join may still be on its way.
    """
    layout = ledger.layout
    known = ledger.read(layout.incarnation(worker))
    applies = incarnation >= known
    remove(ledger, worker=worker, leaves=applies, closed=incarnation < 0)
    ledger.write_if(applies, layout.incarnation(worker), incarnation)
    return applies


def finish(ledger: Ledger, *, alive: Any, worker: Any, ticket: Any) -> Any:
    """Close an evaluation ticket immediately; without a push, no other server has to know of it."""
    layout, logic = ledger.layout, ledger.logic
    done = logic.logical_and(alive, ledger.read(layout.held(worker)) == ticket)
    ledger.count_if(done, layout.COMPLETED)
    ledger.count_if(done, layout.evaluation_steps(worker))
    return done
