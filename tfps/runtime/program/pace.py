"""Describes how steps move variables without an optimizer, such as moving averages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.linear_part import Factor


class Assignment(NamedTuple):
    """A place in a step where a variable is assigned."""

    kept: Factor | None  # see `bridge.linear_part.find_kept_factor`
    is_nested: bool  # in a branch, a loop or a function: it may run any number of times


@dataclass(frozen=True)
class MovingPace:
    """The pace of a step that makes a variable ``kept * old + c``, with ``c`` from its batch.

    So steps of several workers can follow each other, from any values with which each began: every
    worker's step moves the variable as far as it would in one process.
    """

    kept: float | None  # the kept part of the old value, by a whole step; None: known after it
    only_adds: bool  # whether steps always keep all of it: batches only add to it
    is_assigned_once: bool  # whether each step assigns it exactly once


def find_pace(
    variable: Any, assignments: Sequence[Assignment], *, devices: int
) -> MovingPace | None:
    """Return how much of its old value a step keeps in a variable.

    None unless the new value is ``kept * old + c``, where ``c`` comes from the batch.

    Args:
        variable: a Keras variable that no optimizer updates.
        assignments: its assignments in a step.
        devices: the number of a worker's devices that divide a batch.
    """
    dtype, kept = tf.as_dtype(variable.dtype), [each.kept for each in assignments]
    if not kept or any(factor is None for factor in kept):
        return None
    only_adds = all(isinstance(factor, float) and factor == 1.0 for factor in kept)
    numbers = [factor for factor in kept if isinstance(factor, float)]
    known = len(numbers) == len(kept)
    if not dtype.is_floating and not (
        dtype.is_integer and known and all(factor in (0.0, 1.0) for factor in numbers)
    ):
        return None
    if variable.aggregation == "sum" and devices > 1 and not only_adds:
        return None  # the devices' changes are added, and each keeps the old value
    is_fixed = known and not any(each.is_nested for each in assignments)
    return MovingPace(
        kept=math.prod(numbers) if is_fixed else None,
        only_adds=only_adds,
        is_assigned_once=is_fixed and len(numbers) == 1,
    )
