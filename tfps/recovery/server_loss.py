"""What the loss of a parameter server has cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLoss:
    """One return of a server that had been lost.

    Args:
        server: its index.
        checkpoint: the number of the one that its rows come from.
        restored_updates: how many updates its rows have.
        updates: how many the job has made.
        seconds: from the moment that the loss was known to the end of it.

    Example:

    >>> str(ServerLoss(0, checkpoint=3, restored_updates=1200, updates=1234, seconds=2.0))
    'ps 0 (back at update 1200 of 1234: 34 updates lost on its rows)'
    """

    server: int
    checkpoint: int
    restored_updates: int
    updates: int
    seconds: float

    @property
    def updates_lost(self) -> int:
        """Updates that its rows lack."""
        return max(0, self.updates - self.restored_updates)

    def __str__(self) -> str:
        return (
            f"ps {self.server} (back at update {self.restored_updates} of {self.updates}: "
            f"{self.updates_lost} updates lost on its rows)"
        )
