"""How the steps of a program move what no optimizer updates, such as moving averages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.linear_part import Factor


class Assignment(NamedTuple):
    """A place in a step where a variable is assigned."""

    kept: Factor | None  # see `bridge.linear_part.kept_of`
    is_nested: bool  # in a branch, a loop or a function: it may run any number of times


@dataclass(frozen=True)
class MovingPace:
    """A step makes a variable ``kept * old + c``, where ``c`` comes from its batch.

    So steps of several workers can follow each other, whatever the values that each began with:
    every worker's step moves the variable as far as it would in one process.
    """

    kept: float | None  # of the old value, by a whole step; None: known when the step has run
    adds: bool  # all of it, always: batches only add to it
    is_once: bool  # a step assigns it once, and always


def pace_of(variable: Any, assignments: Sequence[Assignment], *, devices: int) -> MovingPace | None:
    """The pace of a variable; None where a new value does not follow from the old one in this way.

    Args:
        variable: of Keras, which no optimizer updates.
        assignments: of it, in a step.
        devices: how many of a worker divide a batch.
    """
    dtype, kept = tf.as_dtype(variable.dtype), [each.kept for each in assignments]
    if not kept or any(factor is None for factor in kept):
        return None
    adds = all(isinstance(factor, float) and factor == 1.0 for factor in kept)
    numbers = [factor for factor in kept if isinstance(factor, float)]
    known = len(numbers) == len(kept)
    if not dtype.is_floating and not (
        dtype.is_integer and known and all(factor in (0.0, 1.0) for factor in numbers)
    ):
        return None
    if variable.aggregation == "sum" and devices > 1 and not adds:
        return None  # each device's change counts, of which each keeps the old value
    is_fixed = known and not any(each.is_nested for each in assignments)
    return MovingPace(
        kept=math.prod(numbers) if is_fixed else None,
        adds=adds,
        is_once=is_fixed and len(numbers) == 1,
    )
