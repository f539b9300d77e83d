"""Defines the base class of wrappers that correct stale gradients before the inner optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfps.optimizers.wrapper import OptimizerWrapper


@dataclass(frozen=True)
class ParameterChange:
    """The current value of a variable, and the value that the sender of a gradient has used.

    Args:
        now: the value on the server.
        sent: the value that the worker was sent last; equals `now` if nothing is stale.
        slots: attribute -> Keras variable, the wrapper's slots of the variable.
        updates: float32 scalar, the number of gradients that the inner optimizer has applied.
    """

    now: Any
    sent: Any
    slots: Mapping[str, Any]
    updates: Any

    @property
    def difference(self) -> Any:
        """The current value minus the sent value, with the variable's shape and dtype."""
        return self.now - self.sent


class Correction(OptimizerWrapper):
    """A wrapper that corrects each gradient on its server, by how far its parameters have moved.

    The server stores the values that it sent to each worker. This takes one copy of the weights per
    worker; the copies are neither saved nor sent.
    """

    needs_steps = False  # whether `record_step` is called

    def correct(self, gradient: Any, change: ParameterChange) -> Any:
        """Return the corrected gradient, of the same shape and dtype.

        Args:
            gradient: the gradient of the unscaled loss, clipped unless gradients are accumulated.
            change: the present and the sent value of the gradient's variable.
        """
        raise NotImplementedError

    def record_step(self, step: Any, change: ParameterChange) -> None:
        """Record by how much an update has changed the variable.

        Args:
            step: the change of the variable, of its shape and dtype.
            change: the present and the sent value of the variable.
        """
