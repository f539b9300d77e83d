"""What papers do with a stale gradient, item by item. Pure: numbers, arrays and tensors alike.

``moved`` is how far a parameter has moved since the worker was handed it: now minus then. Where it
is 0 the gradient is not stale, and every formula answers what it was given, to the bit.
"""

from __future__ import annotations

from typing import Any

from keras import ops


def mean_square(before: Any, value: Any, *, momentum: float) -> Any:
    """A running mean of squares.

    Example:

    >>> mean_square(1.0, 3.0, momentum=0.75)
    3.0
    """
    return momentum * before + (1.0 - momentum) * value * value


def step_size(square: Any, *, updates: Any, momentum: float, epsilon: float) -> Any:
    """The size of a typical step, from a running mean of squares that began with 0.

    Args:
        square: the running mean.
        updates: steps that it has seen.
        momentum: of the running mean.
        epsilon: the least answer, so that one can divide by it.

    Example:

    >>> float(step_size(0.25, updates=2.0, momentum=0.5, epsilon=0.0))
    0.5773502588272095
    """
    weights = ops.maximum(1.0 - momentum**updates, 1.0 - momentum)
    return ops.sqrt(square / weights) + epsilon


def gap(moved: Any, *, step: Any) -> Any:
    """One, plus how many steps of that size the parameter has moved. Source: Barkai et al. 2020.

    Example:

    >>> gap(-0.5, step=0.25)
    3.0
    """
    return abs(moved) / step + 1.0
