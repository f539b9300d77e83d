"""Lists the parts of an optimizer: the optimizers that it wraps, and its slots."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.keras_private import LossScaleOptimizer, MultiOptimizer
from tfps.bridge.variables.shards import all_shards
from tfps.optimizers.staleness_aware import StalenessAware
from tfps.optimizers.wrapper import Wrapper

WRAPPERS = (LossScaleOptimizer, Wrapper)


def leaves(optimizer: Any) -> list[Any]:
    """Return the optimizers that have slots: a wrapper's inner ones, or the optimizer itself."""
    if isinstance(optimizer, WRAPPERS):
        return leaves(optimizer.inner_optimizer)
    if isinstance(optimizer, MultiOptimizer):
        return [leaf for inner in optimizer.optimizers for leaf in leaves(inner)]
    return [optimizer]


def members(optimizer: Any) -> list[Any]:
    """Return an optimizer and all optimizers that it wraps."""
    if isinstance(optimizer, WRAPPERS):
        return [optimizer, *members(optimizer.inner_optimizer)]
    if isinstance(optimizer, MultiOptimizer):
        return [optimizer, *(m for inner in optimizer.optimizers for m in members(inner))]
    return [optimizer]


def adopt(optimizer: Any, strategy: tf.distribute.Strategy) -> None:
    """Let an optimizer run under a strategy: its state moves when it is built or used."""
    for member in members(optimizer):
        member.__dict__["_distribution_strategy"] = strategy


def wrappers_over(optimizer: Any, leaf: Any) -> list[Any]:
    """Return the wrappers around one of an optimizer's leaves, the outermost first."""
    return [
        member
        for member in members(optimizer)
        if member is not leaf and any(inner is leaf for inner in leaves(member))
    ]


def bare(optimizer: Any) -> Any:
    """Return an optimizer without its outer wrappers for stale gradients."""
    while isinstance(optimizer, Wrapper):
        optimizer = optimizer.inner_optimizer
    return optimizer


def drop_above_of(optimizer: Any) -> int | None:
    """Return the staleness in updates above which a server drops gradients; None for never."""
    bounds = [
        member.drop_above
        for member in members(optimizer)
        if isinstance(member, StalenessAware) and member.drop_above is not None
    ]
    return min(bounds, default=None)


def devices_of(optimizer: Any) -> list[str]:
    """Return the servers that have variables of an optimizer, or shards of them."""
    return list(dict.fromkeys(p._value.device for p in all_shards(optimizer._trainable_variables)))


def slot_lists(optimizer: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the slots of an optimizer: attribute, and a Keras variable or None per variable."""
    count = len(optimizer._trainable_variables)
    for name, value in list(optimizer.__dict__.items()):
        if name in ("_variables", "_trainable_variables"):
            continue  # lists of all variables, no slots
        if (
            isinstance(value, list)
            and len(value) == count
            and all(item is None or isinstance(item, keras.Variable) for item in value)
        ):
            yield name, value


def is_decayed(optimizer: Any, variable: Any) -> bool:
    """Return whether weight decay acts on a variable, by its name on one machine."""
    native = SimpleNamespace(_unique_id=variable._value._unique_id, name=f"{variable.name}:0")
    return bool(optimizer._use_weight_decay(native))
