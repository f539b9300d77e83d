"""Momentum that asynchronous workers can use: one for each of them, and parameters looked ahead."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfps.errors import ConfigError
from tfps.optimizers.remembering import OfSender, Remembering


@keras.saving.register_keras_serializable("tfps")
class DANA(Remembering, keras.optimizers.SGD):
    """SGD with a momentum for each worker, whose gradients are those of a place looked ahead.

    With one momentum for all, every worker's step is followed by the momentum of all others before
    its next gradient arrives, and training with many workers fails. Here each worker's momentum
    lies on the servers, and a worker computes its gradient where all momenta will carry the
    parameters: ``theta - rate * momentum * (v1 + v2 + ...)``. What the servers hold, hand out and
    save is that place itself, as with Nesterov's momentum in Keras: a push of worker i is
    ``v_i = momentum * v_i - rate * g`` and ``w += momentum * v_i - rate * g``. With one worker, or
    on one machine, it does what ``keras.optimizers.SGD(momentum=..., nesterov=True)`` does, to the
    bit. Each server keeps one copy of its weights for every worker. Saved is the momentum of
    worker 0; the other workers begin without one. Pushes of the coordinator count as worker 0's.

    Source: Hakimi, Barkai, Gabel and Schuster, "Taming Momentum in a Distributed Asynchronous
    Environment", 2019: DANA-Slim, which the paper shows to be its DANA-Zero in other variables.

    Args:
        learning_rate: a number or a schedule of Keras.
        momentum: above 0, below 1.
        kwargs: of every optimizer of Keras, such as ``name`` or ``weight_decay``.

    Raises:
        ConfigError: another momentum; or a strategy that applies several workers' gradients
            together, where there are no momenta of workers.

    Example:

    >>> optimizer = DANA(0.1)
    >>> weight = keras.Variable([1.0])
    >>> optimizer.apply([keras.ops.convert_to_tensor([0.5])], [weight])
    >>> round(float(weight.numpy()[0]), 4)
    0.905
    """

    tfps_elementwise = True
    remembered_slot = "momentums"

    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.9, **kwargs: Any) -> None:
        is_number = isinstance(momentum, (int, float)) and not isinstance(momentum, bool)
        if not is_number or not 0 < momentum < 1:
            raise ConfigError(
                f"momentum: received {momentum!r}, expected a number above 0, below 1; without "
                "momentum use keras.optimizers.SGD"
            )
        super().__init__(learning_rate=learning_rate, momentum=momentum, nesterov=True, **kwargs)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable."""
        of_sender = self.of_sender.get(self._var_key(variable))
        if of_sender is None:  # of one worker the slot is enough
            super().update_step(gradient, variable, learning_rate)
            return
        slot = self.momentums[self._get_variable_index(variable)]
        momentum = ops.cast(self.momentum, variable.dtype)
        step = ops.cast(gradient, variable.dtype) * ops.cast(learning_rate, variable.dtype)
        new = _momentum_of(of_sender, slot) * momentum - step
        _keep(of_sender, slot, new)
        self.assign_add(variable, new * momentum - step)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["nesterov"]
        return dict(config)


def _momentum_of(of_sender: OfSender, slot: Any) -> tf.Tensor:
    return tf.cond(of_sender.has_row, of_sender.read, slot.value.read_value)


def _keep(of_sender: OfSender, slot: Any, momentum: tf.Tensor) -> None:
    def in_slot() -> tf.Tensor:
        slot.assign(momentum)
        return tf.constant(0)

    def in_memory() -> tf.Tensor:
        of_sender.write(momentum)
        return tf.constant(0)

    tf.cond(of_sender.has_row, in_memory, in_slot)
