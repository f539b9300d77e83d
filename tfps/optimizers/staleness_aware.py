"""An optimizer whose step is the smaller the staler its gradient is."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.saving import serialization_lib
from keras.src.utils import tracking

from tfps.bridge.step_scope import current_step
from tfps.errors import ConfigError
from tfps.optimizers.discount import Discount, resolve


@keras.saving.register_keras_serializable("tfps")
class StalenessAware(keras.optimizers.Optimizer):
    """Multiplies the learning rate of an update by a discount for its gradient's staleness.

    Asynchronous workers compute gradients from parameters that others have updated meanwhile. Taken
    in full such gradients can make training unstable, most of all with many workers or a high
    learning rate. The staleness of each gradient is counted exactly on its server, which applies it
    with ``learning_rate * discount(staleness)``. The rate is discounted and not the gradient, which
    Adam would scale back up. Where nothing is stale, such as with one worker or on one machine, it
    does what the inner optimizer does, to the bit. It needs no memory of its own.

    Source: Zhang et al., "Staleness-aware Async-SGD for Distributed Deep Learning", IJCAI 2016.

    Args:
        optimizer: any optimizer of Keras, or one of your own.
        discount: ``"inverse"``, ``"inverse_plus_one"``, ``"exponential"`` or ``"none"`` (see
            `tfps.optimizers.discount`), or a function from a float32 scalar, the staleness in
            updates, to a factor. A function of your own is saved with the model if it is registered
            with Keras.
        drop_above: a staleness in updates from which on, exclusive, a gradient is not applied but
            counted in ``strategy.stats().gradients_dropped``; None applies all. Each server decides
            by its own count, so a gradient may be dropped on one and applied on another.
        name: of the optimizer.

    Raises:
        ConfigError: no optimizer, another discount, or a ``drop_above`` below 0.

    Example:

    >>> optimizer = StalenessAware(keras.optimizers.Adam(1e-3), discount="inverse_plus_one")
    >>> float(optimizer.learning_rate)
    0.0010000000474974513
    """

    def __init__(
        self,
        optimizer: Any,
        discount: Any = "inverse",
        *,
        drop_above: int | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise ConfigError(
                f"optimizer: received {optimizer!r}, expected an optimizer of Keras, such as "
                "keras.optimizers.Adam(1e-3)"
            )
        is_count = isinstance(drop_above, int) and not isinstance(drop_above, bool)
        if drop_above is not None and not (is_count and drop_above >= 0):
            raise ConfigError(
                f"drop_above: received {drop_above!r}, expected a whole number of updates from 0, "
                "or None to drop nothing"
            )
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = optimizer
        self.discount: Discount = resolve(discount)
        self.drop_above = drop_above

    @tracking.no_automatic_dependency_tracking
    def build(self, variables: list[Any]) -> None:
        """Create the inner optimizer's slots."""
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(variables)
        super().build(variables)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Push gradients from a worker's step; elsewhere, where none is stale, apply them."""
        if not self.built and trainable_variables is not None:
            self.build(list(trainable_variables))
        step = current_step()
        if step is None:
            self.inner_optimizer.apply(grads, trainable_variables)
        else:
            step.apply(self, list(grads), trainable_variables)

    @property
    def variables(self) -> list[Any]:
        """Its own and those of the inner optimizer."""
        return [*self._variables, *self.inner_optimizer.variables]

    @property
    def learning_rate(self) -> Any:
        """The inner optimizer's, not discounted."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self) -> Any:
        """Updates that the inner optimizer has made."""
        return self.inner_optimizer.iterations

    def scale_loss(self, loss: Any) -> Any:
        return self.inner_optimizer.scale_loss(loss)

    def finalize_variable_values(self, var_list: Any) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        return {
            "optimizer": serialization_lib.serialize_keras_object(self.inner_optimizer),
            "discount": serialization_lib.serialize_keras_object(self.discount),
            "drop_above": self.drop_above,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        made = {
            key: serialization_lib.deserialize_keras_object(
                config[key], custom_objects=custom_objects
            )
            for key in ("optimizer", "discount")
        }
        return cls(**{**config, **made})
