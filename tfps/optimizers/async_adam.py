"""Adam's scaling of gradients, with a momentum that suits asynchronous workers."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfps.errors import refuse
from tfps.optimizers import formulas
from tfps.optimizers.gathered_rows import to_dense
from tfps.optimizers.numbers import ABOVE_0, FROM_0_BELOW_1, find_range_problems
from tfps.optimizers.worker_state import WorkerStateMixin

PER_WORKER, ORDERED = MOMENTA = ("per_worker", "ordered")


@keras.saving.register_keras_serializable("tfps")
class AsyncAdam(WorkerStateMixin, keras.optimizers.Optimizer):
    """Adam for asynchronous workers: one second moment, and a momentum that stale gradients suit.

    Use it instead of Adam if many workers do not wait for each other. All workers share the second
    moment, which scales each gradient as in Adam: ``d = g / (sqrt(v) + epsilon)``, with ``v``
    corrected for its start at 0. The momentum has one of two forms:

    - ``"per_worker"``: that of `DANA`, on the scaled gradients. A push of worker i does
      ``m_i = beta_1 * m_i - rate * d`` and ``w += beta_1 * m_i - rate * d``. Each server stores one
      copy of its weights per worker. With one worker it is Nesterov's momentum.
    - ``"ordered"``: one momentum for all workers, which decays once per round of as many pushes as
      workers take part. A late gradient counts as if it had arrived in its own round. It needs no
      copies. With one worker it is the usual momentum.

    A step is up to ``rate / (1 - beta_1)`` long, in Adam only ``rate``: good learning rates are
    about a tenth of Adam's. On one machine it trains as with one worker on servers. Only the
    momentum of worker 0 is saved; the others start without one. Pushes of the coordinator count as
    worker 0's. In a `SparseUpdates` it is refused: between two look-ups of a row its momentum would
    miss the steps of the others. Give large tables an optimizer of their own with `ByTable`.

    Source: for the second moment, Kingma and Ba, "Adam", ICLR 2015; for the momenta, Hakimi et al.,
    "Taming Momentum in a Distributed Asynchronous Environment", 2019 (DANA-Slim), and Shi, Yang and
    Li, "Ordered Momentum for Asynchronous SGD", NeurIPS 2024. No source is known for combining
    them.

    Args:
        learning_rate: a number or a Keras schedule.
        momentum: ``"per_worker"`` or ``"ordered"``.
        beta_1: the decay of the momentum, at least 0 and below 1.
        beta_2: the decay of the second moment, at least 0 and below 1.
        epsilon: added to the root of the second moment.
        kwargs: arguments of every Keras optimizer, such as ``name`` or ``weight_decay``.

    Raises:
        ConfigError: an argument is out of its range; or a strategy applies several workers'
            gradients together, so that workers have no momenta.

    Example:

    >>> optimizer = AsyncAdam(0.1)
    >>> weight = keras.Variable([1.0])
    >>> optimizer.apply([keras.ops.convert_to_tensor([0.5])], [weight])
    >>> round(float(weight.numpy()[0]), 4)
    0.805
    """

    tfps_elementwise = True
    has_long_formula = True

    def __init__(
        self,
        learning_rate: Any = 1e-4,
        momentum: str = PER_WORKER,
        beta_1: float = 0.95,
        beta_2: float = 0.99,
        epsilon: float = 1e-7,
        **kwargs: Any,
    ) -> None:
        problems = find_range_problems(
            beta_1=(beta_1, FROM_0_BELOW_1),
            beta_2=(beta_2, FROM_0_BELOW_1),
            epsilon=(epsilon, ABOVE_0),
        )
        if momentum not in MOMENTA:
            kinds = " or ".join(map(repr, MOMENTA))
            problems.insert(
                0,
                f"momentum: received {momentum!r}, expected {kinds}; the decay of the "
                "momentum is beta_1",
            )
        refuse(problems)
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum, self.epsilon = momentum, float(epsilon)
        self.beta_1, self.beta_2 = float(beta_1), float(beta_2)
        self.per_worker_slot = "momentums" if momentum == PER_WORKER else None

    def build(self, variables: list[Any]) -> None:
        """Create the slots: a momentum and a second moment for each variable.

        Args:
            variables: the variables to train.
        """
        if self.built:
            return
        super().build(variables)
        self.momentums, self.velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable with the second moment and with the momentum.

        Args:
            gradient: the gradient of the loss, as Keras passes it.
            variable: the variable that is updated.
            learning_rate: the learning rate of this update.
        """
        index, dtype = self._get_variable_index(variable), variable.dtype
        velocity = self.velocities[index]
        (square,) = self.update_with_momentum(
            variable,
            self.momentums[index],
            self._compute,
            tf.convert_to_tensor(velocity.value),
            ops.cast(to_dense(gradient), dtype),
            ops.cast(learning_rate, dtype),
            ops.cast(self.iterations + 1, dtype),
            *(ops.cast(value, dtype) for value in self._find_round()),
        )
        self.assign(velocity, square)

    def _compute(
        self, momentum: Any, square: Any, gradient: Any, rate: Any, updates: Any, *of_round: Any
    ) -> tuple[Any, ...]:
        """Return the next momentum, the change of the variable, and the next second moment."""
        square = formulas.update_mean_square(square, gradient, momentum=self.beta_2)
        size = formulas.compute_step_size(
            square, updates=updates, momentum=self.beta_2, epsilon=self.epsilon
        )
        step = rate * gradient / size
        if self.momentum == PER_WORKER:
            return *formulas.move_ahead(momentum, step=step, decay=self.beta_1), square
        late, begins = of_round
        moved = formulas.move_in_order(
            momentum, step=step, decay=self.beta_1, rounds_late=late, begins_round=begins
        )
        return *moved, square

    def _find_round(self) -> tuple[Any, ...]:
        """Return how many rounds late the gradient is, and whether it begins one; if ordered."""
        if self.momentum == PER_WORKER:
            return ()
        update = ops.cast(self.iterations, "int64")
        staleness, workers = (ops.cast(value, "int64") for value in self.push_staleness)
        staleness = staleness // (self.gradient_accumulation_steps or 1)
        workers = ops.maximum(workers, 1)
        read_at = ops.maximum(update - staleness, 0)
        return update // workers - read_at // workers, update % workers == 0

    def get_config(self) -> dict[str, Any]:
        config = dict(super().get_config())
        for name in ("momentum", "beta_1", "beta_2", "epsilon"):
            config[name] = getattr(self, name)
        return config
