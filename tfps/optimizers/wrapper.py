"""What all optimizers have in common that wrap another one for the sake of stale gradients."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.saving import serialization_lib
from keras.src.utils import tracking

from tfps.bridge.step_scope import current_step
from tfps.errors import ConfigError


class Wrapper(keras.optimizers.Optimizer):
    """An optimizer that leaves the update to another one; on one machine it is that one.

    Args:
        optimizer: any optimizer of Keras, or one of your own.
        name: of this one.

    Raises:
        ConfigError: no optimizer.
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
        """Create the inner optimizer's slots, and its own."""
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(variables)  # which tracks what it adds, to save it
        self._build_own(variables)

    @tracking.no_automatic_dependency_tracking
    def _build_own(self, variables: list[Any]) -> None:
        super().build(variables)
        self._add_slots(variables)

    def _add_slots(self, variables: list[Any]) -> None:
        """Create what it has of its own for each variable."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Push gradients from a worker's step; elsewhere, where none is stale, apply them."""
        step = current_step()
        if step is not None:  # which builds it outside of what is traced
            step.apply(self, list(grads), trainable_variables)
            return
        if not self.built and trainable_variables is not None:
            self.build(list(trainable_variables))
        self.inner_optimizer.apply(grads, trainable_variables)

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
        inner = serialization_lib.serialize_keras_object(self.inner_optimizer)
        return {"optimizer": inner, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Make it, and the inner optimizer, from what `get_config` answered."""
        made = {
            key: serialization_lib.deserialize_keras_object(value, custom_objects=custom_objects)
            for key, value in config.items()
            if isinstance(value, dict)
        }
        return cls(**{**config, **made})
