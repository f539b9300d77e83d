"""What one call of an optimizer is about. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OptimizerCall:
    """One call of an optimizer, or (optimizer None) the exchange of state at the end of a step.

    Args:
        optimizer: of Keras.
        variables: of Keras, which the call gives gradients for.
    """

    optimizer: Any
    variables: tuple[Any, ...] = ()

    @property
    def identity(self) -> Hashable:
        """The same for each trace of the call."""
        return id(self.optimizer), tuple(id(variable) for variable in self.variables)


def optimizers_of(calls: Iterable[OptimizerCall]) -> tuple[Any, ...]:
    """The optimizers that are called, each once."""
    return tuple({id(call.optimizer): call.optimizer for call in calls}.values())
