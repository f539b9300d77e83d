"""An optimizer that estimates what a stale gradient would be now."""

from __future__ import annotations

from typing import Any

import keras

from tfps.errors import ConfigError
from tfps.optimizers import formulas
from tfps.optimizers.correction import Correction, Moved
from tfps.optimizers.numbers import ABOVE_0, FROM_0, FROM_0_BELOW_1, problems_of


@keras.saving.register_keras_serializable("tfps")
class DelayCompensated(Correction):
    """Corrects a stale gradient by how far the parameters have moved meanwhile (DC-ASGD).

    A stale gradient belongs to older parameters. The first term of its Taylor series leads to the
    new ones, with the squared gradient for the curvature:
    ``g + lambda_ * g * g * (now - handed)``. For asynchronous training whose accuracy falls behind
    that of one worker. Where nothing is stale, such as with one worker or on one machine, it does
    what the inner optimizer does, to the bit. Each server keeps what it handed each worker: one
    more copy of its weights for every worker, two where steps are pipelined; and one of the squares
    if it is adaptive.

    Source: Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation",
    ICML 2017; DC-ASGD-c, or DC-ASGD-a where it is adaptive.

    Args:
        optimizer: any optimizer of Keras, or one of your own.
        lambda_: how much is compensated, per unit of the gradient; 0 is nothing. The paper has 0.04
            for CIFAR-10, and 2 where it is adaptive.
        adaptive: divide ``lambda_`` by the root of the gradient's running mean square, item by
            item. That square is saved with the model.
        momentum: of the running mean; from 0, below 1.
        epsilon: added to the mean square.
        name: of the optimizer.

    Raises:
        ConfigError: no optimizer, or a number out of its range.

    Example:

    >>> optimizer = DelayCompensated(keras.optimizers.SGD(0.1), lambda_=2.0, adaptive=True)
    >>> float(optimizer.learning_rate)
    0.10000000149011612
    """

    def __init__(
        self,
        optimizer: Any,
        lambda_: float = 0.04,
        *,
        adaptive: bool = False,
        momentum: float = 0.95,
        epsilon: float = 1e-7,
        name: str | None = None,
    ) -> None:
        super().__init__(optimizer, name=name)
        problems = problems_of(
            lambda_=(lambda_, FROM_0),
            momentum=(momentum, FROM_0_BELOW_1),
            epsilon=(epsilon, ABOVE_0),
        )
        if problems:
            raise ConfigError(problems, source="DelayCompensated")
        self.lambda_, self.adaptive = float(lambda_), bool(adaptive)
        self.momentum, self.epsilon = float(momentum), float(epsilon)

    def _add_slots(self, variables: list[Any]) -> None:
        if self.adaptive:
            self._mean_squares = self.add_optimizer_variables(variables, "mean_square")

    def correct(self, gradient: Any, moved: Moved) -> Any:
        strength: Any = self.lambda_
        if self.adaptive:
            slot = moved.slots["_mean_squares"]
            square = formulas.mean_square(slot.value, gradient, momentum=self.momentum)
            slot.assign(square)
            strength = formulas.adaptive_strength(self.lambda_, square, epsilon=self.epsilon)
        return formulas.compensated(gradient, moved=moved.by, strength=strength)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "lambda_": self.lambda_,
            "adaptive": self.adaptive,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
        }
