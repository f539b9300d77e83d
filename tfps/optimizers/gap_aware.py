"""An optimizer that divides stale gradients by the number of steps the parameters have moved."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tfps.errors import refuse
from tfps.optimizers import formulas
from tfps.optimizers.correction import Correction, ParameterChange
from tfps.optimizers.numbers import ABOVE_0, FROM_0_BELOW_1, find_range_problems


@keras.saving.register_keras_serializable("tfps")
class GapAware(Correction):
    """Divides each item of a stale gradient by its gap: one plus the steps that it lags behind.

    Use it for asynchronous training with momentum and many workers. The number of missed updates
    says little about how far the parameters have moved: updates may cancel each other, or be tiny
    late in training. The gap is this distance in typical steps, per parameter:
    ``abs(now - sent) / step + 1``. So gradients of parameters that did not move count in full. If
    nothing is stale, such as with one worker or on one machine, it equals the inner optimizer bit
    for bit. Each server stores the values that it sent to each worker: one copy of its weights per
    worker, and one copy for the squared steps.

    Source: after Barkai, Hakimi and Schuster, "Gap-Aware Mitigation of Gradient Staleness", ICLR
    2020, the parameter-wise variant. The typical step is the root of a running mean of the squared
    steps, corrected for its start at 0; the paper's own estimate may differ.

    Args:
        optimizer: any Keras optimizer, or one of your own.
        momentum: the momentum of the running mean of the squared steps, at least 0 and below 1. The
            mean is saved with the model.
        epsilon: added to the typical step; has the unit of the parameters.
        name: the name of the optimizer.

    Raises:
        ConfigError: the value is no optimizer, or a number is out of its range.

    Example:

    >>> optimizer = GapAware(keras.optimizers.SGD(0.1, momentum=0.9))
    >>> float(optimizer.learning_rate)
    0.10000000149011612
    """

    needs_steps = True

    def __init__(
        self,
        optimizer: Any,
        *,
        momentum: float = 0.999,
        epsilon: float = 1e-8,
        name: str | None = None,
    ) -> None:
        super().__init__(optimizer, name=name)
        problems = find_range_problems(
            momentum=(momentum, FROM_0_BELOW_1), epsilon=(epsilon, ABOVE_0)
        )
        refuse(problems, source="GapAware")
        self.momentum, self.epsilon = float(momentum), float(epsilon)

    def _add_slots(self, variables: list[Any]) -> None:
        self._step_squares = self.add_optimizer_variables(variables, "step_square")

    def correct(self, gradient: Any, change: ParameterChange) -> Any:
        step = formulas.compute_step_size(
            change.slots["_step_squares"].value,
            updates=ops.cast(change.updates, gradient.dtype),
            momentum=self.momentum,
            epsilon=self.epsilon,
        )
        return gradient / formulas.compute_gap(change.difference, step=step)

    def record_step(self, step: Any, change: ParameterChange) -> None:
        slot = change.slots["_step_squares"]
        slot.assign(formulas.update_mean_square(slot.value, step, momentum=self.momentum))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "epsilon": self.epsilon}
