"""Checks that an optimizer can update each shard of a variable separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras

from tfps.bridge.variables.shards import shards_of
from tfps.errors import UnsupportedError
from tfps.optimizers.elementwise import is_elementwise
from tfps.optimizers.wrapped import devices_of, leaves

# Norms along axes; a shard has all items of an axis except axis 0, the rows.
ALONG_AXES = (
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
    if type(constraint) in ALONG_AXES:
        axes = constraint.axis if isinstance(constraint.axis, (list, tuple)) else [constraint.axis]
        return all(axis % rank != 0 for axis in axes)
    return vars(type(constraint)).get("tfps_by_rows") is True


def refuse_inexact_on_shards(optimizer: Any) -> None:
    """Check that an optimizer can update the sharded variables that it trains.

    Raises:
        UnsupportedError: a variable is sharded, and its update needs the whole variable.
    """
    for problem in shard_problems(optimizer, shards_of=lambda v: len(shards_of(v))):
        raise UnsupportedError(problem)


def shard_problems(optimizer: Any, *, shards_of: Callable[[Any], int]) -> Iterator[str]:
    """Yield a message for each reason why an optimizer needs a sharded variable as a whole.

    Args:
        optimizer: a built optimizer.
        shards_of: returns the number of shards of a Keras variable.
    """
    for leaf in leaves(optimizer):
        for variable in leaf._trainable_variables:
            shards = shards_of(variable)
            for reason in _reasons(leaf, variable) if shards > 1 else ():
                yield (
                    f"{variable.path}: received {shards} shards of the variable, and {reason}. No "
                    "server holds all shards. Keep it whole with "
                    "variable_partitioner=tfps.partitioners.ByPath({...}) or None."
                )


def refuse_inexact_on_servers(optimizer: Any) -> None:
    """Check that servers can run the update of an optimizer.

    Raises:
        UnsupportedError: the update needs gradients that no single server has.
    """
    for problem in clip_problems(optimizer, servers_of=lambda leaf: len(devices_of(leaf))):
        raise UnsupportedError(problem)


def clip_problems(optimizer: Any, *, servers_of: Callable[[Any], int]) -> Iterator[str]:
    """Yield a message for each optimizer whose clipping no single server can compute.

    Args:
        optimizer: a built optimizer.
        servers_of: returns the number of servers that hold the variables of an inner optimizer.
    """
    for leaf in leaves(optimizer):
        clips_all = leaf.global_clipnorm and leaf.gradient_accumulation_steps
        servers = servers_of(leaf) if clips_all else 1
        if servers > 1:
            yield (
                f"{leaf.name}: received global_clipnorm with gradient_accumulation_steps, which "
                f"clips the accumulated gradient of the whole model; none of the {servers} "
                "parameter servers holds all of it. Use clipnorm or clipvalue, or one parameter "
                "server."
            )


def _reasons(leaf: Any, variable: Any) -> Iterator[str]:
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
