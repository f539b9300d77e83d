"""What cannot be computed on each shard of a variable by itself, and is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from tfps.bridge.pieces import pieces_of
from tfps.errors import UnsupportedError
from tfps.optimizers.elementwise import is_elementwise
from tfps.optimizers.wrapped import leaves

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
    for leaf in leaves(optimizer):
        divided = [v for v in leaf._trainable_variables if len(pieces_of(v)) > 1]
        for variable in divided:
            for reason in _reasons(leaf, variable):
                raise UnsupportedError(
                    f"{variable.path} is divided into {len(pieces_of(variable))} shards, and "
                    f"{reason}. No server holds all of it. Leave it whole with "
                    "variable_partitioner=tfps.partitioners.ByRule({...}), or with None."
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
