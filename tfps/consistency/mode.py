"""What a consistency mode is to the parts that act on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """A mode that asks for nothing: gradients are applied one by one, and no worker waits.

    Each mode overrides what it does differently, by a setting of the same name or by a property.
    A worker that may have to wait sends nothing ahead, so only the mode without a wait overrides
    `pipeline_steps`.

    Example:

    >>> Mode().bound_steps is None
    True
    """

    @property
    def pipeline_steps(self) -> int:
        """How many pushes a worker has on their way while it computes."""
        return 0

    @property
    def bound_steps(self) -> int | None:
        """How far ahead of the slowest a worker may start a step; None: as far as it can."""
        return None

    @property
    def backup_workers(self) -> int | None:
        """How many workers a round does not wait for; None: gradients are applied one by one."""
        return None

    @property
    def warm_up_steps(self) -> int:
        """How many steps of `fit` each worker takes by itself before anything else."""
        return 0
