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
from tfps.bridge.variables.replaced_values import replace_values
from tfps.optimizers.in_place import InPlaceStrategy
from tfps.optimizers.wrapped import get_leaf_optimizers, get_nested_optimizers, is_decayed


def apply_locally(
    optimizer: Any,
    gradients: Sequence[tf.Tensor],
    variables: Sequence[Any],
    *,
    copies: Sequence[tuple[Any, Any]],
    read_iterations: Callable[[Any], tf.Tensor],
) -> None:
    """Trace an optimizer's `apply` as on one machine.

    Args:
        optimizer: a built optimizer of any class.
        gradients: dense gradients, one for each variable.
        variables: Keras variables.
        copies: (Keras variable, native variable of the worker) for all variables that the optimizer
            uses.
        read_iterations: returns the step for a learning rate schedule, given the optimizer's
            iterations.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_scope())
        stack.enter_context(private.default_replica_context())
        decayed = {id(leaf): _find_decayed(leaf) for leaf in get_leaf_optimizers(optimizer)}
        stack.enter_context(replace_values(list(copies)))
        for member in get_nested_optimizers(optimizer):
            changes: dict[str, Any] = {
                "_distribution_strategy": InPlaceStrategy,
                "_all_reduce_sum_gradients": list,
            }
            if id(member) in decayed:
                changes["_exclude_from_weight_decay_cache"] = decayed[id(member)]
            if isinstance(member, LossScaleOptimizer):
                changes["_tf_apply"] = member._common_apply
            schedule = member._learning_rate
            if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
                changes["_learning_rate"] = schedule(read_iterations(member._iterations))
            stack.enter_context(_replace_attributes(member, changes))
        optimizer.apply(list(gradients), list(variables))


def _find_decayed(leaf: Any) -> dict[Any, bool]:
    """Return a mapping from variable keys to whether weight decay acts on the variable."""
    return {leaf._var_key(v): is_decayed(leaf, v) for v in leaf._trainable_variables}


@contextlib.contextmanager
def _replace_attributes(owner: Any, changes: Mapping[str, Any]) -> Iterator[None]:
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
