"""The base class of wrappers that correct a stale gradient before the inner optimizer gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfps.optimizers.wrapper import Wrapper


@dataclass(frozen=True)
class ParameterChange:
    """A variable's value now, and its value when it was sent to the worker of a gradient.

    Args:
        now: the value on the server.
        handed: the value that the worker was sent last; equals `now` if nothing is stale.
        slots: attribute -> Keras variable, the wrapper's slots of the variable.
        updates: float32 scalar, the number of gradients that the inner optimizer has applied.
    """

    now: Any
    handed: Any
    slots: Mapping[str, Any]
    updates: Any

    @property
    def by(self) -> Any:
        """The difference of both, with the variable's shape and dtype."""
        return self.now - self.handed


class Correction(Wrapper):
    """A wrapper that corrects each gradient on its server, by how far its parameters have moved.

    The server stores the values that it sent to each worker. This takes one copy of the weights per
    worker, or two with pipelined steps. The copies are neither saved nor sent.
    """

    watches_steps = False  # whether `note_step` is called

    def correct(self, gradient: Any, moved: ParameterChange) -> Any:
        """Return the corrected gradient, of the same shape and dtype.

        Args:
            gradient: the gradient of the unscaled loss, clipped unless gradients are accumulated.
            moved: the present and the sent value of the gradient's variable.
        """
        raise NotImplementedError

    def note_step(self, step: Any, moved: ParameterChange) -> None:
        """Record by how much an update has changed the variable.

        Args:
            step: the change of the variable, of its shape and dtype.
            moved: the present and the sent value of the variable.
        """
