"""The base class of optimizers that wrap another one to handle stale gradients or single rows."""

from __future__ import annotations

from typing import Any

import keras

from tfps.bridge.keras_private import serialization_lib, tracking
from tfps.bridge.step_scope import current_step
from tfps.errors import ConfigError


class OptimizerWrapper(keras.optimizers.Optimizer):
    """An optimizer that delegates updates to an inner one; on one machine both are equal.

    Args:
        optimizer: any Keras optimizer, or one of your own.
        name: the name of this optimizer.

    Raises:
        ConfigError: the value is no optimizer.
    """

    def __init__(self, optimizer: Any, *, name: str | None = None) -> None:
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise ConfigError(
                f"optimizer: received {optimizer!r}, expected an optimizer of Keras, such as "
                "keras.optimizers.Adam(1e-3)"
            )
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = optimizer

    def build(self, variables: list[Any]) -> None:
        """Create the slots of the inner optimizer."""
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(variables)  # tracks its own slots, to save them
        self._build_wrapper(variables)

    @tracking.no_automatic_dependency_tracking
    def _build_wrapper(self, variables: list[Any]) -> None:
        super().build(variables)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Push gradients inside a worker's step; elsewhere apply them with the inner optimizer."""
        step = current_step()
        if step is not None:  # it builds the optimizer outside of the trace
            step.apply(self, list(grads), trainable_variables)
            return
        if not self.built and trainable_variables is not None:
            self.build(list(trainable_variables))
        self.inner_optimizer.apply(grads, trainable_variables)

    @property
    def variables(self) -> list[Any]:
        """The variables of the wrapper and of the inner optimizer."""
        return [*self._variables, *self.inner_optimizer.variables]

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the inner optimizer, without discount."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self) -> Any:
        """The number of updates of the inner optimizer."""
        return self.inner_optimizer.iterations

    def scale_loss(self, loss: Any) -> Any:
        return self.inner_optimizer.scale_loss(loss)

    def finalize_variable_values(self, var_list: Any) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        inner = serialization_lib.serialize_keras_object(self.inner_optimizer)
        return {"optimizer": inner, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Create the wrapper and the inner optimizer from the result of `get_config`."""
        deserialized = {
            key: serialization_lib.deserialize_keras_object(value, custom_objects=custom_objects)
            for key, value in config.items()
            if isinstance(value, dict)
        }
        return cls(**{**config, **deserialized})
