"""An Adagrad that takes the delay of each gradient into account, and revises earlier steps."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tfps.errors import ConfigError
from tfps.optimizers import formulas
from tfps.optimizers.numbers import FROM_0, problems_of
from tfps.optimizers.remembering import Remembering


@keras.saving.register_keras_serializable("tfps")
class AdaptiveRevision(Remembering, keras.optimizers.Adagrad):
    """Adagrad for gradients with long delays: it adapts to them, and revises earlier steps.

    Adagrad divides by the root of the squares of the gradients so far. With delays, what a gradient
    missed counts as well: ``z += g * g + 2 * g * missed``, where ``missed`` is the sum of the
    gradients that were applied since its worker read the parameters. When the rate falls, the steps
    that were missed are revised to the new rate. Made for delays of a thousand updates and more, as
    with many workers and sparse models. Where nothing is stale, such as with one worker or on one
    machine, it does what `keras.optimizers.Adagrad` does, to the bit. It has three slots per weight
    instead of one; each server keeps one of them for every worker, as it was when the worker was
    last answered: one more copy of its weights for every worker, two where steps are pipelined.

    Source: McMahan and Streeter, "Delay-Tolerant Algorithms for Asynchronous Distributed Online
    Learning", NeurIPS 2014.

    Args:
        learning_rate: alpha of the paper: a number or a schedule of Keras.
        initial_accumulator_value: what the accumulators begin with; 1 in the paper. Above 0, or
            ``epsilon`` is.
        epsilon: added to an accumulator before its root is taken.
        kwargs: of every optimizer of Keras, such as ``name`` or ``clipvalue``.

    Raises:
        ConfigError: a negative number, or zero for both.

    Example:

    >>> optimizer = AdaptiveRevision(0.1, initial_accumulator_value=1.0)
    >>> weight = keras.Variable([1.0, 1.0])
    >>> optimizer.apply([keras.ops.convert_to_tensor([0.5, -0.5])], [weight])
    >>> [round(float(item), 4) for item in weight.numpy()]
    [0.9553, 1.0447]
    """

    tfps_elementwise = True
    remembered_slot = "_gradient_sums"
    is_handed_out = True

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **kwargs: Any,
    ) -> None:
        problems = problems_of(
            initial_accumulator_value=(initial_accumulator_value, FROM_0), epsilon=(epsilon, FROM_0)
        )
        if not problems and initial_accumulator_value == epsilon == 0:
            problems = ["initial_accumulator_value, epsilon: received 0 for both, expected one > 0"]
        if problems:
            raise ConfigError(problems, source="AdaptiveRevision")
        super().__init__(
            learning_rate=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=epsilon,
            **kwargs,
        )

    def build(self, var_list: list[Any]) -> None:
        """Create the slots: Adagrad's, the largest value of it, and the sum of the gradients."""
        if self.built:
            return
        super().build(var_list)
        self._largest_accumulators = self.add_optimizer_variables(
            var_list,
            "largest_accumulator",
            initializer=keras.initializers.Constant(self.initial_accumulator_value),
        )
        self._gradient_sums = self.add_optimizer_variables(var_list, "gradient_sum")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable."""
        alpha = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        total, accumulator = self._gradient_sums[index], self._accumulators[index]
        of_sender = self.of_sender.get(self._var_key(variable))
        missed = ops.zeros_like(gradient) if of_sender is None else total - of_sender.read()
        revised = formulas.revised(
            gradient,
            missed=missed,
            square=accumulator,
            largest=self._largest_accumulators[index],
            learning_rate=alpha,
            epsilon=self.epsilon,
        )
        self.assign(accumulator, revised.square)
        self.assign(self._largest_accumulators[index], revised.largest)
        self.assign_sub(variable, revised.decrease)
        self.assign_add(total, gradient)
