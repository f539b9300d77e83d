"""What cannot be computed on each shard of a variable by itself, and is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras

from tfps.bridge.variables.shards import shards_of
from tfps.errors import UnsupportedError
from tfps.optimizers.elementwise import is_elementwise
from tfps.optimizers.wrapped import devices_of, leaves

# Norms along axes, which are whole on a shard unless the rows are among them.
ALONG_AXES = (
    keras.constraints.MaxNorm,
    keras.constraints.MinMaxNorm,
    keras.constraints.UnitNorm,
)


def acts_by_rows(constraint: Any, *, rank: int) -> bool:
    """Whether a constraint of some rows is that of all of them, restricted to these.

    One of the user's own is not, unless its class says ``tfps_by_rows = True``.

    Args:
        constraint: of Keras, or None.
        rank: of the variable.

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
    """Look through an optimizer and the variables that it trains.

    Raises:
        UnsupportedError: a variable is divided, and what it is updated with needs all of it.
    """
    for problem in shard_problems(optimizer, shards_of=lambda v: len(shards_of(v))):
        raise UnsupportedError(problem)


def shard_problems(optimizer: Any, *, shards_of: Callable[[Any], int]) -> Iterator[str]:
    """Say of each divided variable why its optimizer needs all of it.

    Args:
        optimizer: built.
        shards_of: how many shards a variable of Keras has.
    """
    for leaf in leaves(optimizer):
        for variable in leaf._trainable_variables:
            shards = shards_of(variable)
            for reason in _reasons(leaf, variable) if shards > 1 else ():
                yield (
                    f"{variable.path} is divided into {shards} shards, and {reason}. No server "
                    "holds all of it. Leave it whole with "
                    "variable_partitioner=tfps.partitioners.ByPath({...}), or with None."
                )


def refuse_inexact_on_servers(optimizer: Any) -> None:
    """Look through an optimizer whose variables lie on servers.

    Raises:
        UnsupportedError: its update needs what no single server has.
    """
    for problem in clip_problems(optimizer, servers_of=lambda leaf: len(devices_of(leaf))):
        raise UnsupportedError(problem)


def clip_problems(optimizer: Any, *, servers_of: Callable[[Any], int]) -> Iterator[str]:
    """Say of each optimizer that clips why no server can.

    Args:
        optimizer: built.
        servers_of: how many servers hold the variables of one that holds slots.
    """
    for leaf in leaves(optimizer):
        clips_all = leaf.global_clipnorm and leaf.gradient_accumulation_steps
        servers = servers_of(leaf) if clips_all else 1
        if servers > 1:
            yield (
                f"{leaf.name}: global_clipnorm together with gradient_accumulation_steps clips the "
                "accumulated gradient of the whole model, which no single one of the "
                f"{servers} parameter servers holds. Use clipnorm or clipvalue, or one parameter "
                "server."
            )


def _reasons(leaf: Any, variable: Any) -> Iterator[str]:
    kind = type(leaf).__name__
    if not is_elementwise(leaf):
        yield (
            f"{kind} may need all of a variable (a class of your own that does not says "
            "tfps_elementwise = True)"
        )
    if leaf.clipnorm and leaf.gradient_accumulation_steps:
        yield (
            f"{kind}(clipnorm={leaf.clipnorm}, gradient_accumulation_steps="
            f"{leaf.gradient_accumulation_steps}) clips the accumulated gradient of a variable"
        )
    if not acts_by_rows(variable.constraint, rank=len(variable.shape)):
        yield f"its constraint {type(variable.constraint).__name__} needs all of a variable"
