"""Optimizers that change a stale gradient before the one that they wrap sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfps.optimizers.wrapper import Wrapper


@dataclass(frozen=True)
class Moved:
    """How far the variables of a gradient have come since its worker was handed them.

    Args:
        now: the value on the server.
        handed: the value that the worker was handed last; `now` where nothing is stale.
        slots: what the optimizer has for it, as Keras variables by attribute.
        updates: float32 scalar, how many gradients the inner optimizer has taken so far.
    """

    now: Any
    handed: Any
    slots: Mapping[str, Any]
    updates: Any

    @property
    def by(self) -> Any:
        """The difference, of the variable's shape and dtype."""
        return self.now - self.handed


class Correction(Wrapper):
    """A wrapper that corrects each gradient on its server, by how far its parameters have moved.

    The server keeps what it handed each worker: as much memory as there are workers times the
    weights, twice that where steps are pipelined. Nothing of it is saved, nothing of it travels.
    """

    watches_steps = False  # whether `note_step` is called

    def correct(self, gradient: Any, moved: Moved) -> Any:
        """The gradient to apply instead.

        Args:
            gradient: of an unscaled loss, and clipped, unless gradients are accumulated first.
            moved: its variable.
        """
        raise NotImplementedError

    def note_step(self, step: Any, moved: Moved) -> None:
        """Take notice of how far an update has moved the variable."""
