"""Compute the cost of losing a parameter server: updates lost, or steps repeated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerLoss:
    """Describes the loss and return of one server.

    Args:
        server: the server's index.
        checkpoint: the number of the checkpoint that its rows come from.
        restored_updates: the number of updates that its rows have.
        updates: the number of updates that the job has made.
        seconds: the time from the detection of the loss to the server's return.
        repeated_steps: the number of steps that are repeated since all servers went back; None:
            the others went on, and the server's rows lack updates.
        is_least: whether `updates` may be too small: all servers that knew it were lost.

    Example:

    >>> str(ServerLoss(0, checkpoint=3, restored_updates=1200, updates=1234, seconds=2.0))
    'ps 0 (back at update 1200 of 1234: 34 updates lost on its rows)'
    >>> str(
    ...     ServerLoss(
    ...         1, checkpoint=3, restored_updates=20, updates=40, seconds=2.0, repeated_steps=40
    ...     )
    ... )
    'ps 1 (all servers back at update 20 of 40: 40 steps are repeated)'
    >>> str(
    ...     ServerLoss(
    ...         0, checkpoint=3, restored_updates=20, updates=20, seconds=2.0, is_least=True
    ...     )
    ... )
    'ps 0 (back at update 20: all servers were lost, and with them the number of those since)'
    """

    server: int
    checkpoint: int
    restored_updates: int
    updates: int
    seconds: float
    repeated_steps: int | None = None
    is_least: bool = False

    @property
    def updates_lost(self) -> int:
        """The number of updates that the server's rows lack."""
        if self.repeated_steps is not None:
            return 0
        return max(0, self.updates - self.restored_updates)

    def __str__(self) -> str:
        return f"ps {self.server} ({self._summary})"

    @property
    def _summary(self) -> str:
        if self.repeated_steps is not None:
            return (
                f"all servers back at update {self.restored_updates} of {self.updates}: "
                f"{self.repeated_steps} steps are repeated"
            )
        if self.is_least:
            return (
                f"back at update {self.restored_updates}: all servers were lost, and with them the "
                "number of those since"
            )
        return (
            f"back at update {self.restored_updates} of {self.updates}: "
            f"{self.updates_lost} updates lost on its rows"
        )

    def add_to_restarts(self, restarts: list[str]) -> None:
        """Add the cost to the server's newest restart in a list, if it contains one.

        >>> restarts = ["ps 0 (SIGKILL)", "worker 1 (SIGKILL)"]
        >>> loss = ServerLoss(0, checkpoint=3, restored_updates=12, updates=15, seconds=2.0)
        >>> loss.add_to_restarts(restarts)
        >>> restarts[0]
        'ps 0 (SIGKILL, back at update 12 of 15: 3 updates lost on its rows)'
        """
        own = [k for k, text in enumerate(restarts) if text.startswith(f"ps {self.server} (")]
        if own:
            restarts[own[-1]] = f"{restarts[own[-1]].removesuffix(')')}, {self._summary})"


def updates_lost(losses: Iterable[ServerLoss]) -> int:
    """Return how many updates rows lack after losses; an update that is lost twice counts once.

    Args:
        losses: the losses of any servers.

    Example:

    >>> first = ServerLoss(0, checkpoint=1, restored_updates=10, updates=15, seconds=1.0)
    >>> again = ServerLoss(0, checkpoint=1, restored_updates=10, updates=18, seconds=1.0)
    >>> updates_lost([first, again])
    8
    """
    total, reached = 0, dict[int, int]()
    lasting = [loss for loss in losses if loss.repeated_steps is None]
    for loss in sorted(lasting, key=lambda loss: loss.restored_updates):
        begin = max(loss.restored_updates, reached.get(loss.server, 0))
        total += max(0, loss.updates - begin)
        reached[loss.server] = max(loss.updates, reached.get(loss.server, 0))
    return total
