"""Describe a state between two rounds to which all servers can go back. Pure.

No worker takes part at that moment, and a checkpoint has the variables' values. The rest is small:
the ledgers, and which of the returned tickets a server had applied. Later tickets are issued again
under the same numbers, so data and seeds, which depend on them, are the same. A worker that pushed
one before the servers went back has an older incarnation, and a position in the rounds that does
not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tfps.consistency.ledger import MAX_CALLS, NEVER, NOTHING, LedgerLayout
from tfps.consistency.returned_ledger import without_workers

# The number of points that stay with their checkpoint: the newest, and one if that is damaged.
KEPT_POINTS = 2


@dataclass(frozen=True)
class RoundPoint:
    """The state of all servers between two rounds.

    Args:
        checkpoint: the number of the checkpoint with the variables.
        ledgers: the cells of each server.
        applied: for each server the keys of the returned tickets that it had applied.
        writes: the number of this process's own writes of each variable, by name.
    """

    checkpoint: int
    ledgers: tuple[tuple[int, ...], ...]
    applied: tuple[Mapping[int, int], ...]
    writes: Mapping[str, int] = field(default_factory=dict)

    def versions(self, layout: LedgerLayout) -> tuple[int, ...]:
        """Return the number of updates of each server."""
        return tuple(cells[layout.VERSION] for cells in self.ledgers)

    def is_unchanged(
        self, layout: LedgerLayout, ledgers: Mapping[int, Sequence[int]], writes: Mapping[str, int]
    ) -> bool:
        """Return whether no variable has changed since this point.

        Args:
            layout: the layout of the ledgers.
            ledgers: the current cells of some servers, by their index.
            writes: the current numbers of writes.
        """
        cells = (layout.VERSION, layout.FENCE)  # a restored checkpoint moves the fence
        same = all(
            now[cell] == self.ledgers[server][cell]
            for server, now in ledgers.items()
            for cell in cells
        )
        return same and not self.written_since(writes)

    def written_since(self, writes: Mapping[str, int]) -> list[str]:
        """Return the variables that this process has written since this point."""
        return sorted(name for name, count in writes.items() if count != self.writes.get(name, 0))


def list_returned_tickets(layout: LedgerLayout, tickets: Sequence[int]) -> list[int]:
    """Return the returned tickets, which wait to be issued again.

    Args:
        layout: the layout of the ledger.
        tickets: the cells of the ticket server.
    """
    return [int(tickets[layout.returned(k)]) for k in range(int(tickets[layout.RETURNED]))]


def make_ledger_at_point(
    layout: LedgerLayout,
    past_cells: Sequence[int],
    *,
    incarnations: Mapping[int, int],
    position: int,
    fence: int,
) -> list[int]:
    """Return the cells of a server that goes back; it issues no ticket until the chief allows it.

    Args:
        layout: the layout of the ledger.
        past_cells: the cells at the point.
        incarnations: the newest incarnation of each worker; it and older ones are refused.
        position: the position in the rounds from which all servers continue.
        fence: the current fence.
    """
    cells = without_workers(layout, past_cells)
    cells[layout.LIMIT] = cells[layout.NEXT]
    cells[layout.POSITION], cells[layout.FENCE] = position, fence
    for worker in range(layout.workers):
        known = cells[layout.incarnation(worker)]
        cells[layout.incarnation(worker)] = max(known, incarnations.get(worker, 0))
        cells[layout.waiting(worker)] = cells[layout.contributed(worker)] = 0
        cells[layout.begins(worker)], cells[layout.wanted(worker)] = NEVER, NOTHING
    return cells


def choose_next_position(layout: LedgerLayout, ledgers: Collection[Sequence[int]]) -> int:
    """Return the position at which the round after the newest one begins, for all servers.

    Contributions to a round that was not completed do not count towards another one.
    """
    newest = max(int(cells[layout.POSITION]) for cells in ledgers)
    return (newest // MAX_CALLS + 1) * MAX_CALLS


def index_of_oldest_kept(checkpoints: Sequence[int], *, committed: Collection[int]) -> int:
    """Return the index of the oldest point that must be kept.

    Args:
        checkpoints: the numbers of the points' checkpoints, the oldest first.
        committed: the numbers of the checkpoints that are complete.

    Example:

    >>> index_of_oldest_kept([3, 4, 5, 6, 7], committed={3, 4, 5, 6})
    2
    """
    complete = [k for k, number in enumerate(checkpoints) if number in committed]
    return complete[-KEPT_POINTS] if len(complete) >= KEPT_POINTS else 0
