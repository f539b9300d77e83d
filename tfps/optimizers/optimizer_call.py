"""A call of an optimizer in a step. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OptimizerCall:
    """One call of an optimizer, or (optimizer None) the exchange of state at the end of a step.

    Args:
        optimizer: a Keras optimizer.
        variables: the Keras variables for which the call has gradients.
    """

    optimizer: Any
    variables: tuple[Any, ...] = ()

    @property
    def identity(self) -> Hashable:
        """A key that is equal for all traces of the call."""
        return id(self.optimizer), tuple(id(variable) for variable in self.variables)


def collect_optimizers(calls: Iterable[OptimizerCall]) -> tuple[Any, ...]:
    """Return the distinct optimizers of some calls."""
    return tuple({id(call.optimizer): call.optimizer for call in calls}.values())
