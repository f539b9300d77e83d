"""Predictions on the chief: Keras's own loop, with the weights of the servers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.table_call import looks_up_rows
from tfps.bridge.method_scope import without_strategy
from tfps.bridge.step_scope import raise_recorded_errors
from tfps.bridge.variables.replaced_values import replace_values
from tfps.bridge.variables.row_blocks import is_large
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import get_all_shards
from tfps.runtime.program.program import is_metric


class ChiefPrediction:
    """The state that `predict` on the chief keeps for a model.

    It is a separate object because TensorFlow exports every function that is an attribute of a
    model with its SavedModel, and this function reads variables that the model does not own.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tf.Variable] = {}  # by Keras variable
        self._predict_function: Any = None
        self._handles: list[Any] = []  # of tables, as the function has captured them

    @classmethod
    def from_model(cls, model: Any) -> ChiefPrediction:
        """Return the model's state, created on first use."""
        return model.__dict__.setdefault("_tfps_on_chief", cls())

    @contextlib.contextmanager
    def predicting(self, model: Any) -> Iterator[None]:
        """Let Keras predict in this process while the context is open.

        Weights are read once; the rows of large tables come with each batch.
        """
        with model._distribute_strategy.runtime.turn.hold(), self._predicting(model):
            yield

    @contextlib.contextmanager
    def _predicting(self, model: Any) -> Iterator[None]:
        strategy = model._distribute_strategy
        strategy.runtime.refuse_if_closed()
        strategy.run_state.drain()
        tables = _large_tables(model)
        natives = [shard._value for shard in get_all_shards(tables)]
        handles = [(each if each.slab is None else each.slab)._handle for each in natives]
        is_traced = len(handles) == len(self._handles) and all(
            map(_is_same_object, handles, self._handles)
        )
        if not is_traced:  # a table was moved, or its server was started anew
            self._predict_function, self._handles = None, handles
        travelling = {id(table) for table in tables}
        queue = private.get_closure_queue(strategy.coordinator)
        was_idle = queue.is_idle
        before = [
            (variable, variable._value.numpy())  # in parts, where it is large
            for variable in model.variables
            if isinstance(variable._value, ServerVariable) and id(variable) not in travelling
        ]
        chief = strategy.runtime.topology.chief
        replacements = [(each, self._update_copy(each, value, chief)) for each, value in before]
        known = {id(variable) for variable in model.variables}
        predict_function = model.predict_function
        attributes = model.__dict__
        attributes["predict_function"] = self._predict_function
        try:
            with (
                without_strategy(model),
                replace_values(replacements),
                private.default_replica_context(),
                tf.variable_creator_scope(_create_here),  # also where the scope is open
                raise_recorded_errors(),
            ):
                yield
        finally:
            self._predict_function = attributes["predict_function"]
            attributes["predict_function"] = predict_function
            is_alone = was_idle and queue.is_idle
            for variable, value in before:
                self._write_back(variable, value, is_alone=is_alone)
            for variable in model.variables:
                if id(variable) not in known and not is_metric(variable):
                    # The trace of predict knows this one.
                    self._copies[id(variable)] = variable._value
                    with strategy.scope():
                        variable._initialize(variable.numpy())

    def _write_back(self, variable: Any, before: Any, *, is_alone: bool) -> None:
        """Send a value that a layer has assigned in `predict` to the servers.

        Args:
            variable: the Keras variable.
            before: its value when the prediction began.
            is_alone: whether no scheduled function can have changed it meanwhile.
        """
        now = self._copies[id(variable)].numpy()
        if np.array_equal(now, before):
            return
        if is_alone or not np.issubdtype(now.dtype, np.number):
            variable._value.assign(now)
        else:
            is_kept = now == before  # among them infinities, which have no difference
            is_replaced = ~is_kept & (np.isinf(now) | np.isinf(before))
            change = np.subtract(now, before, out=np.zeros_like(now), where=~is_kept & ~is_replaced)
            variable._value.assign_add(change)
            if is_replaced.any():
                variable._value.assign(np.where(is_replaced, now, variable._value.numpy()))

    def _update_copy(self, variable: Any, value: Any, chief: str) -> tf.Variable:
        """Copy a server variable's value to a variable of this process, and return that."""
        copies = self._copies
        with private.placed_on(chief), private.default_replica_context():
            if id(variable) in copies:
                copies[id(variable)].assign(value)
            else:
                # Not tf.Variable, which would be the strategy's in its scope.
                create = private.resource_variable_ops.ResourceVariable
                copies[id(variable)] = create(value, trainable=variable.trainable)
        return copies[id(variable)]


def _create_here(_: Any, **options: Any) -> tf.Variable:
    """Create a variable of a layer that `predict` builds: in this process, as its other copies."""
    return private.resource_variable_ops.default_variable_creator_v2(None, **options)


def _large_tables(model: Any) -> list[Any]:
    """Return the embedding tables that are too large for the chief."""
    layers = [layer for layer in model._flatten_layers() if looks_up_rows(layer) and layer.built]
    return [layer._embeddings for layer in layers if is_large(layer._embeddings)]


def _is_same_object(one: Any, other: Any) -> bool:
    return one is other
