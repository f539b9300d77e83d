"""An optimizer that takes smaller steps for stale gradients."""

from __future__ import annotations

from typing import Any

import keras

from tfps.bridge.keras_private import serialization_lib
from tfps.errors import ConfigError
from tfps.optimizers.discount import Discount, resolve_discount
from tfps.optimizers.wrapper import OptimizerWrapper


@keras.saving.register_keras_serializable("tfps")
class StalenessAware(OptimizerWrapper):
    """Multiplies the learning rate of an update by a discount for its gradient's staleness.

    Use it if asynchronous training is unstable, which is most likely with many workers or a high
    learning rate: workers compute gradients from parameters that others have already updated.
    Each server counts the exact staleness of a gradient and applies it with
    ``learning_rate * discount(staleness)``. The discount acts on the rate because Adam would scale
    a smaller gradient back up. If nothing is stale, such as with one worker or on one machine, it
    equals the inner optimizer bit for bit. It needs no additional memory.

    Source: Zhang et al., "Staleness-aware Async-SGD for Distributed Deep Learning", IJCAI 2016.

    Args:
        optimizer: any Keras optimizer, or one of your own.
        discount: ``"exponential"``, which is ``exp(-0.1 * staleness)``; ``"none"``, to use only
            ``drop_above``; `tfps.optimizers.discount.Exponential` with another rate; or a function
            from a float32 scalar, the staleness in updates, to a factor. A function of your own is
            saved with the model if it is registered with Keras.
        drop_above: the staleness in updates above which a gradient is not applied but counted in
            ``strategy.stats().gradients_dropped``; None applies all. Each server decides by its own
            count, so a gradient may be dropped on one server and applied on another.
        name: the name of the optimizer.

    Raises:
        ConfigError: the value is no optimizer, another discount, or ``drop_above`` is below 0.

    Example:

    >>> optimizer = StalenessAware(keras.optimizers.Adam(1e-3), drop_above=16)
    >>> float(optimizer.learning_rate)
    0.0010000000474974513
    """

    def __init__(
        self,
        optimizer: Any,
        discount: Any = "exponential",
        *,
        drop_above: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(optimizer, name=name)
        is_count = isinstance(drop_above, int) and not isinstance(drop_above, bool)
        if drop_above is not None and not (is_count and drop_above >= 0):
            raise ConfigError(
                f"drop_above: received {drop_above!r}, expected a whole number of updates from 0, "
                "or None to drop no gradient"
            )
        self.discount: Discount = resolve_discount(discount)
        self.drop_above = drop_above

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "discount": serialization_lib.serialize_keras_object(self.discount),
            "drop_above": self.drop_above,
        }
