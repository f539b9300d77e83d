"""SGD with a separate momentum for each asynchronous worker, and look-ahead parameters."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tfps.errors import ConfigError
from tfps.optimizers import formulas
from tfps.optimizers.worker_state import WorkerStateMixin


@keras.saving.register_keras_serializable("tfps")
class DANA(WorkerStateMixin, keras.optimizers.SGD):
    """SGD with one momentum per worker, and gradients at the parameters that momenta will reach.

    Use it to train with momentum on many asynchronous workers. With one shared momentum, each
    worker's step is followed by the momentum of all others before its next gradient arrives, and
    training with many workers fails. Here the servers store each worker's momentum, and a worker
    computes its gradient at the point to which all momenta will move the parameters:
    ``theta - rate * momentum * (v1 + v2 + ...)``. The servers store, send and save that point, as
    with Nesterov's momentum in Keras: a push of worker i does ``v_i = momentum * v_i - rate * g``
    and ``w += momentum * v_i - rate * g``. With one worker, or on one machine, it equals
    ``keras.optimizers.SGD(momentum=..., nesterov=True)`` bit for bit. Each server stores one copy
    of its weights per worker. Only the momentum of worker 0 is saved; the others start without one.
    Pushes of the coordinator count as worker 0's.

    Source: Hakimi, Barkai, Gabel and Schuster, "Taming Momentum in a Distributed Asynchronous
    Environment", 2019: DANA-Slim, which the paper shows to be its DANA-Zero in other variables.

    Args:
        learning_rate: a number or a Keras schedule.
        momentum: a number above 0 and below 1.
        kwargs: arguments of every Keras optimizer, such as ``name`` or ``weight_decay``.

    Raises:
        ConfigError: another momentum; or a strategy that applies several workers' gradients
            together, so that workers have no momenta.

    Example:

    >>> optimizer = DANA(0.1)
    >>> weight = keras.Variable([1.0])
    >>> optimizer.apply([keras.ops.convert_to_tensor([0.5])], [weight])
    >>> round(float(weight.numpy()[0]), 4)
    0.905
    """

    tfps_elementwise = True
    per_worker_slot = "momentums"

    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.9, **kwargs: Any) -> None:
        is_number = isinstance(momentum, (int, float)) and not isinstance(momentum, bool)
        if not is_number or not 0 < momentum < 1:
            raise ConfigError(
                f"momentum: received {momentum!r}, expected a number above 0, below 1; for "
                "training without momentum use keras.optimizers.SGD"
            )
        super().__init__(learning_rate=learning_rate, momentum=momentum, nesterov=True, **kwargs)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update a variable with the momentum of the worker that sent the gradient.

        Args:
            gradient: the gradient of the loss, as Keras passes it.
            variable: the variable that is updated.
            learning_rate: the learning rate of this update.
        """
        if self.sender_states.get(self._var_key(variable)) is None:  # for one worker: the slot
            super().update_step(gradient, variable, learning_rate)
            return
        slot, dtype = self.momentums[self._get_variable_index(variable)], variable.dtype

        def look_ahead(momentum: Any, gradient: Any, rate: Any) -> tuple[Any, Any]:
            return formulas.move_ahead(momentum, step=gradient * rate, decay=self.momentum)

        rate = ops.cast(learning_rate, dtype)
        self.update_with_momentum(variable, slot, look_ahead, ops.cast(gradient, dtype), rate)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["nesterov"]
        return dict(config)
