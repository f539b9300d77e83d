"""Find the variables that a model makes, without a cluster and without memory for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.errors import ConfigError
from tfps.placement.forecast import PlannedVariable
from tfps.runtime.program.program import is_seed


class _CreatedVariable(NamedTuple):
    variable: Any  # the Keras variable's value
    reference: Any  # the value of the variable that it belongs to
    may_be_trained: bool  # when it was made; freezing a layer does not change it


class DryRunStrategy:
    """Replaces a strategy while a model is made and compiled; starts nothing.

    Variables get a shape and no value, so a model may be larger than this machine.

    Example:

    >>> import keras
    >>> dry_run = DryRunStrategy()
    >>> with dry_run.scope():
    ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)], name="small")
    ...     model.compile(keras.optimizers.SGD(0.1))
    >>> [variable.shape for variable in dry_run.planned_variables(model)][:2]
    [(4, 3), (3,)]
    """

    def __init__(self) -> None:
        self._strategy = tf.distribute.OneDeviceStrategy("/device:CPU:0")
        self._created: list[_CreatedVariable] = []

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Return a context that makes variables without memory; use it like a strategy's scope."""
        with self._strategy.scope(), tf.variable_creator_scope(self._create_variable):
            yield

    def planned_variables(self, model: Any) -> list[PlannedVariable]:
        """Return the variables of a compiled model and its optimizer, in the order of a strategy.

        Raises:
            ConfigError: the model has no variables yet.
        """
        if not model.built:
            raise ConfigError(
                f"{model.name}: received a model without variables, expected a built one; add a "
                "keras.Input, or call model.build(shape)"
            )
        if not model.optimizer.built:
            with self.scope():
                model.optimizer.build(model.trainable_variables)
        weights = {id(v) for v in model.variables if not is_seed(v)}
        trained = {id(v) for v in model.trainable_variables}
        by_value = {id(v._value): v for v in [*model.optimizer.variables, *model.variables]}
        # A variable that Keras does not keep is not on a server either.
        kept = [created for created in self._created if id(created.variable) in by_value]
        numbers = {id(created.variable): number for number, created in enumerate(kept)}
        first = numbers[id(model.optimizer._trainable_variables[0]._value)]
        counts = {id(v) for v in model.optimizer.variables if v.shape == ()}
        return [
            PlannedVariable(
                path=variable.path,
                shape=tuple(variable.shape),
                dtype=str(variable._dtype),
                owner=numbers.get(id(created.reference)),
                moved_beside=first if id(variable) in counts else None,
                is_pulled=id(variable) in weights,
                is_trained=id(variable) in trained,
                is_frozen=created.may_be_trained and id(variable) in weights - trained,
            )
            for created in kept
            for variable in [by_value[id(created.variable)]]
        ]

    def _create_variable(self, next_creator: Any, **options: Any) -> Any:
        if options.get("synchronization") == tf.VariableSynchronization.ON_READ:
            return next_creator(**options)  # the state of a metric: it lies on the chief
        reference, value = options.get("colocate_with"), options.get("initial_value")
        if callable(value):
            with tf.Graph().as_default():
                shape = value().shape  # nothing is computed
            dtype = tf.as_dtype(options.get("dtype"))
            variable = private.create_anonymous_variable(shape=shape, dtype=dtype)
            # Keras asks the strategy for a place beside it.
            variable._distribute_strategy = self._strategy
        else:
            variable = next_creator(**options)
        self._created.append(
            _CreatedVariable(variable, reference, options.get("trainable") is not False)
        )
        return variable
