"""The properties of a consistency mode that other packages use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """The base of modes: gradients are applied one by one, and no worker waits.

    Each mode overrides what it does differently, by a setting of the same name or by a property.

    Example:

    >>> Mode().bound_steps is None
    True
    """

    @property
    def bound_steps(self) -> int | None:
        """The largest lead over the slowest with which a worker may start a step; None: any."""
        return None

    @property
    def backup_workers(self) -> int | None:
        """The number of workers that a round does not wait for; None: no rounds."""
        return None

    @property
    def warm_up_steps(self) -> int:
        """The number of steps of `fit` that each worker first takes on its own copy."""
        return 0
