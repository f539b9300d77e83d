"""An optimizer of a user's own that corrects stale gradients, by a formula with a twin in NumPy."""

from __future__ import annotations

from typing import Any

import keras

from tfps.optimizers.correction import Correction, ParameterChange


@keras.saving.register_keras_serializable("tests")
class Compensated(Correction):
    """Leads a stale gradient to the parameters of now, to first order.

    Args:
        optimizer: any optimizer.
        strength: how much, per unit of the gradient.
        name: of the optimizer.
    """

    def __init__(self, optimizer: Any, strength: float = 0.5, *, name: str | None = None) -> None:
        super().__init__(optimizer, name=name)
        self.strength = strength

    def correct(self, gradient: Any, moved: ParameterChange) -> Any:
        # In this order, so that what has not moved adds 0 however large the gradient is.
        return gradient + self.strength * moved.difference * gradient * gradient

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "strength": self.strength}
