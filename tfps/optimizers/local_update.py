"""Runs an optimizer's own update on a worker's copies of variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_private import LossScaleOptimizer
from tfps.bridge.step_scope import without_scope
from tfps.bridge.variables.replaced_values import values_replaced
from tfps.optimizers.in_place import InPlace
from tfps.optimizers.wrapped import is_decayed, leaves, members


def apply_locally(
    optimizer: Any,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[Any],
    *,
    copies: Sequence[tuple[Any, Any]],
    updates: Callable[[Any], tf.Tensor],
) -> None:
    """Trace an optimizer's `apply` as on one machine.

    Args:
        optimizer: a built optimizer of any class.
        gradients: dense gradients, one for each variable.
        variables: Keras variables.
        copies: (Keras variable, native variable of the worker) for all variables that the optimizer
            uses.
        updates: maps the optimizer's iterations to the step for its learning rate schedule.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_scope())
        stack.enter_context(private.default_replica_context())
        decayed = {id(leaf): _decayed(leaf) for leaf in leaves(optimizer)}
        stack.enter_context(values_replaced(list(copies)))
        for member in members(optimizer):
            changes: dict[str, Any] = {
                "_distribution_strategy": InPlace,
                "_all_reduce_sum_gradients": list,
            }
            if id(member) in decayed:
                changes["_exclude_from_weight_decay_cache"] = decayed[id(member)]
            if isinstance(member, LossScaleOptimizer):
                changes["_tf_apply"] = member._common_apply
            schedule = member._learning_rate
            if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
                changes["_learning_rate"] = schedule(updates(member._iterations))
            stack.enter_context(_attributes(member, changes))
        optimizer.apply(list(gradients), list(variables))


def _decayed(leaf: Any) -> dict[Any, bool]:
    """Return whether weight decay acts on each variable, by its name on one machine."""
    return {leaf._var_key(v): is_decayed(leaf, v) for v in leaf._trainable_variables}


@contextlib.contextmanager
def _attributes(owner: Any, changes: Mapping[str, Any]) -> Iterator[None]:
    """Replace attributes of an object while the context is open."""
    attributes = owner.__dict__
    before = {name: attributes[name] for name in changes if name in attributes}
    attributes.update(changes)
    try:
        yield
    finally:
        for name in changes:
            del attributes[name]
        attributes.update(before)
