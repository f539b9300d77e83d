"""An optimizer that measures how far variables have moved while each gradient was computed."""

from __future__ import annotations

from typing import Any

import keras

import tfps
from tfps.optimizers.correction import Correction, ParameterChange


@keras.saving.register_keras_serializable("tests")
class DistanceMeter(Correction):
    """Adds up how far variables have moved while each gradient was computed."""

    def _add_slots(self, variables: list[Any]) -> None:
        self.moved = self.add_optimizer_variables(variables, "moved")

    def correct(self, gradient: Any, moved: ParameterChange) -> Any:
        slot = moved.slots["moved"]
        slot.assign(slot.value + moved.difference)
        return gradient


def descend_by_one() -> DistanceMeter:
    """With gradients of -1 a weight counts updates, and moves by the staleness of each one."""
    return DistanceMeter(keras.optimizers.SGD(1.0))


def total_staleness(strategy: tfps.ParameterServerStrategy) -> int:
    """The total staleness of all gradients so far, in updates."""
    return sum(int(k) * n for k, n in strategy.stats().gradient_staleness_updates.items())
