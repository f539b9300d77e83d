"""Lists the optimizers inside an optimizer, and the slots of each."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from tfps.bridge.keras_private import LossScaleOptimizer, MultiOptimizer
from tfps.bridge.variables.shards import get_all_shards
from tfps.optimizers.staleness_aware import StalenessAware
from tfps.optimizers.wrapper import OptimizerWrapper

WRAPPERS = (LossScaleOptimizer, OptimizerWrapper)


def get_leaf_optimizers(optimizer: Any) -> list[Any]:
    """Return the innermost optimizers, which have the slots; the optimizer itself if it is one."""
    if isinstance(optimizer, WRAPPERS):
        return get_leaf_optimizers(optimizer.inner_optimizer)
    if isinstance(optimizer, MultiOptimizer):
        return [leaf for inner in optimizer.optimizers for leaf in get_leaf_optimizers(inner)]
    return [optimizer]


def get_nested_optimizers(optimizer: Any) -> list[Any]:
    """Return an optimizer and all optimizers inside it."""
    if isinstance(optimizer, WRAPPERS):
        return [optimizer, *get_nested_optimizers(optimizer.inner_optimizer)]
    if isinstance(optimizer, MultiOptimizer):
        return [
            optimizer,
            *(m for inner in optimizer.optimizers for m in get_nested_optimizers(inner)),
        ]
    return [optimizer]


def assign_strategy(optimizer: Any, strategy: tf.distribute.Strategy) -> None:
    """Set the strategy of an optimizer; its state moves to servers when it is built or used."""
    for member in get_nested_optimizers(optimizer):
        member.__dict__["_distribution_strategy"] = strategy


def get_wrappers(optimizer: Any, leaf: Any) -> list[Any]:
    """Return the wrappers around one of an optimizer's leaves, the outermost first."""
    return [
        member
        for member in get_nested_optimizers(optimizer)
        if member is not leaf and any(inner is leaf for inner in get_leaf_optimizers(member))
    ]


def unwrap_optimizer(optimizer: Any) -> Any:
    """Remove the outer tfps wrappers of an optimizer, and return the optimizer inside."""
    while isinstance(optimizer, OptimizerWrapper):
        optimizer = optimizer.inner_optimizer
    return optimizer


def get_drop_above(optimizer: Any) -> int | None:
    """Return the staleness in updates above which a server drops gradients; None for never."""
    bounds = [
        member.drop_above
        for member in get_nested_optimizers(optimizer)
        if isinstance(member, StalenessAware) and member.drop_above is not None
    ]
    return min(bounds, default=None)


def get_devices(optimizer: Any) -> list[str]:
    """Return the devices of the servers that store the variables an optimizer trains."""
    return list(
        dict.fromkeys(p._value.device for p in get_all_shards(optimizer._trainable_variables))
    )


def iter_slots(optimizer: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield each kind of slot: its attribute, and a slot or None for each trained variable."""
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
    """Return whether weight decay acts on a variable, which Keras decides by its name."""
    native = SimpleNamespace(_unique_id=variable._value._unique_id, name=f"{variable.name}:0")
    return bool(optimizer._use_weight_decay(native))
