"""A Keras optimizer's own update, run inside a server function on the variables of that server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
from keras.src.optimizers.multi_optimizer import MultiOptimizer

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import ServerVariable
from tfps.errors import UnsupportedError

CreateVariable = Callable[..., ServerVariable]


class _InPlace:
    """Stands for the strategy inside a server function: update at once, no merge call."""

    class extended:  # noqa: N801 - the name that Keras looks for
        @staticmethod
        def update(
            variable: Any,
            function: Any,
            args: Any = (),
            kwargs: Any = None,
            group: bool = True,  # noqa: ARG004 - part of TensorFlow's signature
        ) -> Any:
            return function(variable, *args, **(kwargs or {}))


def leaves(optimizer: Any) -> list[Any]:
    """The optimizers that hold slots: a wrapper's inner ones, or the optimizer itself."""
    if isinstance(optimizer, LossScaleOptimizer):
        return leaves(optimizer.inner_optimizer)
    if isinstance(optimizer, MultiOptimizer):
        return [leaf for inner in optimizer.optimizers for leaf in leaves(inner)]
    return [optimizer]


def members(optimizer: Any) -> list[Any]:
    """A wrapper and everything that it wraps."""
    if isinstance(optimizer, LossScaleOptimizer):
        return [optimizer, *members(optimizer.inner_optimizer)]
    if isinstance(optimizer, MultiOptimizer):
        return [optimizer, *(m for inner in optimizer.optimizers for m in members(inner))]
    return [optimizer]


class ServerUpdate:
    """Settles an optimizer's state on the servers and traces its update there.

    The slots of a variable lie on the variable's server. What an optimizer has once (iterations,
    learning rate, Nadam's product, a loss scale) has a home on one server and a mirror on every
    other that holds one of its variables; all of them see the same updates.

    Args:
        optimizer: a built Keras optimizer of any class.
        create_variable: makes a `ServerVariable` on a device.
        strategy: what the optimizer shall think that it runs under.
    """

    def __init__(self, optimizer: Any, *, create_variable: CreateVariable, strategy: Any) -> None:
        self.optimizer = optimizer
        self._create = create_variable
        for member in members(optimizer):
            member.__dict__["_distribution_strategy"] = strategy
            self._settle(member)
        self._settled = [id(v) for v in optimizer._trainable_variables]
        self._refuse_inexact()

    def fits(self, optimizer: Any) -> bool:
        """Whether the optimizer still trains the variables that were settled."""
        return [id(v) for v in optimizer._trainable_variables] == self._settled

    @property
    def devices(self) -> list[str]:
        """The servers that hold variables of this optimizer."""
        return list(dict.fromkeys(v._value.device for v in self.optimizer._trainable_variables))

    def scalars(self) -> Iterator[Any]:
        """What the optimizer has once, as Keras variables."""
        for member in members(self.optimizer):
            for value in member.__dict__.values():
                if isinstance(value, keras.Variable) and value.shape == ():
                    yield value

    def refresh_mirrors(self) -> None:
        """After a load or restore: the mirrors follow their home."""
        for scalar in self.scalars():
            scalar._value.refresh_mirrors()

    def apply(self, gradients: Mapping[int, tf.Tensor], *, device: str) -> None:
        """Trace the update of one server's variables.

        Args:
            gradients: by the Keras variable's id; only variables of this server.
            device: the server whose function is traced.
        """
        with private.default_replica_context():
            self._apply(self.optimizer, gradients, device)

    def _apply(self, optimizer: Any, gradients: Mapping[int, tf.Tensor], device: str) -> None:
        variables = _on(device, optimizer._trainable_variables)
        present = [variable for variable in variables if id(variable) in gradients]
        values = [gradients[id(variable)] for variable in present]
        if isinstance(optimizer, MultiOptimizer):
            for inner in optimizer.optimizers:
                if inner.built and _on(device, inner._trainable_variables):
                    self._apply(inner, gradients, device)
            if device == optimizer._iterations._value.device:
                optimizer._iterations._value.assign_add(1)
        elif isinstance(optimizer, LossScaleOptimizer):
            copy = _shallow_copy(optimizer)
            copy.__dict__["inner_optimizer"] = self._restricted(
                optimizer.inner_optimizer, variables
            )
            copy._common_apply(values, present)
        else:
            self._restricted(optimizer, variables).apply(values, present)

    def _restricted(self, optimizer: Any, variables: Sequence[Any]) -> Any:
        """A shallow copy that knows one server's variables only and shares their slots."""
        copy = _shallow_copy(optimizer)
        attributes = copy.__dict__
        position = {id(v): i for i, v in enumerate(optimizer._trainable_variables)}
        indices = [position[id(variable)] for variable in variables]
        attributes["_trainable_variables"] = list(variables)
        attributes["_trainable_variables_indices"] = {
            copy._var_key(variable): index
            for variable, index in zip(variables, indices, strict=True)
        }
        attributes["_exclude_from_weight_decay_cache"] = {}
        attributes["_distribution_strategy"] = _InPlace
        attributes["_all_reduce_sum_gradients"] = list
        if optimizer.global_clipnorm and len(self.devices) > 1:
            attributes["global_clipnorm"] = None  # the worker has clipped: it sees the whole model
        if optimizer.use_ema:
            averages = optimizer._model_variables_moving_average
            attributes["_model_variables_moving_average"] = [averages[i] for i in indices]
        if optimizer.gradient_accumulation_steps:
            attributes["_accumulated_gradients"] = [
                accumulator if i in indices else None
                for i, accumulator in enumerate(optimizer._accumulated_gradients)
            ]
        return copy

    def _settle(self, member: Any) -> None:
        """Move the state of a built optimizer to the servers of its variables."""
        variables = member._trainable_variables
        if not variables:
            return
        homes = [variable._value.device for variable in variables]
        devices = tuple(dict.fromkeys(homes))
        for name, value in list(member.__dict__.items()):
            if name in ("_variables", "_trainable_variables"):
                continue  # the lists of all of them; what counts is the attribute of each
            if isinstance(value, keras.Variable) and value.shape == ():
                self._move(value, devices[0])
                value._value.mirror_on(devices)
            elif _is_slot_list(value, len(variables)):
                for slot, home in zip(value, homes, strict=True):
                    if slot is not None:
                        self._move(slot, home)

    def _move(self, variable: Any, device: str) -> None:
        old = variable._value
        if isinstance(old, ServerVariable) and old.device == device:
            return
        variable._value = self._create(
            old.numpy(), device=device, dtype=variable._dtype, trainable=False, name=variable.name
        )
        if isinstance(old, ServerVariable):
            old.destroy()

    def _refuse_inexact(self) -> None:
        for leaf in leaves(self.optimizer):
            if leaf.global_clipnorm and leaf.gradient_accumulation_steps and len(self.devices) > 1:
                raise UnsupportedError(
                    f"{leaf.name}: global_clipnorm together with gradient_accumulation_steps clips "
                    "the accumulated gradient of the whole model, which no single one of the "
                    f"{len(self.devices)} parameter servers holds. Use clipnorm or clipvalue, or "
                    "one parameter server."
                )


def _on(device: str, variables: Sequence[Any]) -> list[Any]:
    return [variable for variable in variables if variable._value.device == device]


def _is_slot_list(value: Any, count: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == count
        and all(item is None or isinstance(item, keras.Variable) for item in value)
    )


def _shallow_copy(optimizer: Any) -> Any:
    copy = object.__new__(type(optimizer))
    copy.__dict__.update(optimizer.__dict__)
    return copy
