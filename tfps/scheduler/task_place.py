"""A role and an index, which one task at a time holds. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfps.scheduler.registration import Registration


class PlaceState(enum.Enum):
    """Names whether a place has a task."""

    MISSING = "missing"  # no task has come for it
    HELD = "held"
    LOST = "lost"  # the connection of its task has ended


@dataclass(frozen=True)
class TaskPlace:
    """A role and an index, and the task that holds it or held it last.

    Args:
        role: the type of the task.
        index: its position among the tasks of this type.
        state: whether the place has a task.
        holder: the present or the last task; None if there was none.
        since_s: when the state began.
    """

    role: str
    index: int
    state: PlaceState = PlaceState.MISSING
    holder: Registration | None = None
    since_s: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"

    @property
    def is_held(self) -> bool:
        return self.state is PlaceState.HELD

    def is_free_for(self, task: Registration, *, is_alive: bool) -> bool:
        """Return whether a task may take it.

        While the chief holds its task alive, none but that task may, or one at the same address,
        where no other can listen.

        Args:
            task: the task.
            is_alive: whether the chief holds the place's task alive.
        """
        if self.is_held or not is_alive:
            return not self.is_held
        return task.is_return if self.holder is None else task.address == self.holder.address

    def was_lost_on(self, host: str) -> bool:
        """Return whether the last task came from a host."""
        return (
            self.state is PlaceState.LOST and self.holder is not None and self.holder.host == host
        )

    def __str__(self) -> str:
        address = self.holder and self.holder.address  # empty for an evaluator
        return f"{self.name} at {address}" if address else self.name
