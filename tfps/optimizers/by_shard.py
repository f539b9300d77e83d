"""Checks that an optimizer can update each shard of a variable separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras

from tfps.bridge.variables.shards import get_shards
from tfps.errors import UnsupportedError
from tfps.optimizers.elementwise import is_elementwise
from tfps.optimizers.wrapped import get_devices, get_leaf_optimizers

# Norms along axes; a shard has all items of an axis except axis 0, the rows.
NORM_CONSTRAINTS = (
    keras.constraints.MaxNorm,
    keras.constraints.MinMaxNorm,
    keras.constraints.UnitNorm,
)


def acts_by_rows(constraint: Any, *, rank: int) -> bool:
    """Return whether a constraint acts on each row separately.

    A user's own constraint counts as not, unless its class sets ``tfps_by_rows = True``.

    Args:
        constraint: a Keras constraint, or None.
        rank: the rank of the variable.

    Example:

    >>> acts_by_rows(keras.constraints.NonNeg(), rank=2)
    True
    >>> acts_by_rows(keras.constraints.MaxNorm(axis=0), rank=2)
    False
    """
    if constraint is None or type(constraint) is keras.constraints.NonNeg:
        return True
    if type(constraint) in NORM_CONSTRAINTS:
        axes = constraint.axis if isinstance(constraint.axis, (list, tuple)) else [constraint.axis]
        return all(axis % rank != 0 for axis in axes)
    return vars(type(constraint)).get("tfps_by_rows") is True


def refuse_inexact_shard_updates(optimizer: Any) -> None:
    """Check that an optimizer can update the sharded variables that it trains.

    Raises:
        UnsupportedError: a variable is sharded, and its update needs the whole variable.
    """
    for problem in find_shard_problems(optimizer, count_shards=lambda v: len(get_shards(v))):
        raise UnsupportedError(problem)


def find_shard_problems(optimizer: Any, *, count_shards: Callable[[Any], int]) -> Iterator[str]:
    """Yield a message for each reason why an optimizer needs a sharded variable as a whole.

    Args:
        optimizer: a built optimizer.
        count_shards: returns the number of shards of a Keras variable.
    """
    for leaf in get_leaf_optimizers(optimizer):
        for variable in leaf._trainable_variables:
            shards = count_shards(variable)
            for reason in _find_reasons_for_whole_variable(leaf, variable) if shards > 1 else ():
                yield (
                    f"{variable.path}: received {shards} shards of the variable, and {reason}. No "
                    "server holds all shards. Keep it whole with "
                    "variable_partitioner=tfps.partitioners.ByPath({...}) or None."
                )


def refuse_inexact_server_updates(optimizer: Any) -> None:
    """Check that servers can run the update of an optimizer.

    Raises:
        UnsupportedError: the update needs gradients that no single server has.
    """
    for problem in find_clip_problems(optimizer, count_servers=lambda leaf: len(get_devices(leaf))):
        raise UnsupportedError(problem)


def find_clip_problems(optimizer: Any, *, count_servers: Callable[[Any], int]) -> Iterator[str]:
    """Yield a message for each optimizer whose clipping no single server can compute.

    Args:
        optimizer: a built optimizer.
        count_servers: returns the number of servers that hold the variables of an inner optimizer.
    """
    for leaf in get_leaf_optimizers(optimizer):
        clips_all = leaf.global_clipnorm and leaf.gradient_accumulation_steps
        servers = count_servers(leaf) if clips_all else 1
        if servers > 1:
            yield (
                f"{leaf.name}: received global_clipnorm with gradient_accumulation_steps, which "
                f"clips the accumulated gradient of the whole model; none of the {servers} "
                "parameter servers holds all of it. Use clipnorm or clipvalue, or one parameter "
                "server."
            )


def _find_reasons_for_whole_variable(leaf: Any, variable: Any) -> Iterator[str]:
    kind = type(leaf).__name__
    if not is_elementwise(leaf):
        yield (
            f"{kind} may need all of a variable (set tfps_elementwise = True in a class of your "
            "own that does not)"
        )
    if leaf.clipnorm and leaf.gradient_accumulation_steps:
        yield (
            f"{kind}(clipnorm={leaf.clipnorm}, gradient_accumulation_steps="
            f"{leaf.gradient_accumulation_steps}) clips the accumulated gradient of a variable"
        )
    if not acts_by_rows(variable.constraint, rank=len(variable.shape)):
        yield f"its constraint {type(variable.constraint).__name__} needs all of a variable"
