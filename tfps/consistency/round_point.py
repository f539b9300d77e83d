"""A moment between two rounds that all servers can go back to. Pure.

No worker takes part at that moment, and a checkpoint has the variables as they were. What else
belongs to it is small: the ledgers, and which of the tickets that had come back a server had
applied. Tickets from there on are handed out again under the same numbers, so data and seeds, which
go by them, are the same. Who pushed one before the servers went back has an older incarnation, and
a position in the rounds that does not come back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tfps.consistency.ledger import MAX_CALLS, NEVER, NOTHING, LedgerLayout
from tfps.consistency.returned_ledger import without_workers

# How many of the points that have their checkpoint stay: the newest, and one if that is damaged.
KEPT_POINTS = 2


@dataclass(frozen=True)
class RoundPoint:
    """Where all servers were, between two rounds.

    Args:
        checkpoint: the number of the one that has the variables.
        ledgers: the cells of each server.
        applied: for each server the keys of the tickets that had come back, if it had applied them.
        writes: how often this process had written variables by itself, by their names.
    """

    checkpoint: int
    ledgers: tuple[tuple[int, ...], ...]
    applied: tuple[Mapping[int, int], ...]
    writes: Mapping[str, int] = field(default_factory=dict)

    def versions(self, layout: LedgerLayout) -> tuple[int, ...]:
        """Updates of each server."""
        return tuple(cells[layout.VERSION] for cells in self.ledgers)

    def is_state(
        self, layout: LedgerLayout, ledgers: Mapping[int, Sequence[int]], writes: Mapping[str, int]
    ) -> bool:
        """Whether nothing has changed a variable since.

        Args:
            layout: of the ledgers.
            ledgers: the cells of some servers now, by their index.
            writes: as they are counted now.
        """
        cells = (layout.VERSION, layout.FENCE)  # a restored checkpoint moves the fence
        same = all(
            now[cell] == self.ledgers[server][cell]
            for server, now in ledgers.items()
            for cell in cells
        )
        return same and not self.written_since(writes)

    def written_since(self, writes: Mapping[str, int]) -> list[str]:
        """The variables that this process has written since."""
        return sorted(name for name, count in writes.items() if count != self.writes.get(name, 0))


def returned_tickets(layout: LedgerLayout, tickets: Sequence[int]) -> list[int]:
    """The tickets that wait to be handed out again.

    Args:
        layout: of the ledger.
        tickets: the cells of the server that hands them out.
    """
    return [int(tickets[layout.returned(k)]) for k in range(int(tickets[layout.RETURNED]))]


def ledger_at(
    layout: LedgerLayout,
    then: Sequence[int],
    *,
    incarnations: Mapping[int, int],
    position: int,
    fence: int,
) -> list[int]:
    """Return the cells of a server that goes back; it hands out no ticket until it is told to.

    Args:
        layout: of the ledger.
        then: the cells at the point.
        incarnations: of each worker, the newest; it is refused, and so are older ones.
        position: in the rounds, which all servers go on from.
        fence: as it is now.
    """
    cells = without_workers(layout, then)
    cells[layout.LIMIT] = cells[layout.NEXT]
    cells[layout.POSITION], cells[layout.FENCE] = position, fence
    for worker in range(layout.workers):
        known = cells[layout.incarnation(worker)]
        cells[layout.incarnation(worker)] = max(known, incarnations.get(worker, 0))
        cells[layout.waiting(worker)] = cells[layout.contributed(worker)] = 0
        cells[layout.begins(worker)], cells[layout.wanted(worker)] = NEVER, NOTHING
    return cells


def next_position(layout: LedgerLayout, ledgers: Collection[Sequence[int]]) -> int:
    """Return a position that no server has been at, where a round begins.

    What was contributed to a round that was not completed does not count towards another one.
    """
    newest = max(int(cells[layout.POSITION]) for cells in ledgers)
    return (newest // MAX_CALLS + 1) * MAX_CALLS


def oldest_kept(checkpoints: Sequence[int], *, committed: Collection[int]) -> int:
    """Return the position of the oldest point that must stay.

    Args:
        checkpoints: of the points, the oldest first.
        committed: the numbers of the checkpoints that are complete.

    Example:

    >>> oldest_kept([3, 4, 5, 6, 7], committed={3, 4, 5, 6})
    2
    """
    complete = [k for k, number in enumerate(checkpoints) if number in committed]
    return complete[-KEPT_POINTS] if len(complete) >= KEPT_POINTS else 0
