"""Formulas from papers for stale gradients, item by item. Pure: numbers, arrays and tensors.

``change`` is the change of a parameter since it was sent to the worker: the value now minus the
value then. Where it is 0 the gradient is not stale, and its gap is exactly 1.
"""

from __future__ import annotations

from typing import Any

from keras import ops


def update_mean_square(before: Any, value: Any, *, momentum: float) -> Any:
    """Return the next value of a running mean of squares.

    Example:

    >>> update_mean_square(1.0, 3.0, momentum=0.75)
    3.0
    """
    return momentum * before + (1.0 - momentum) * value * value


def compute_step_size(square: Any, *, updates: Any, momentum: float, epsilon: float) -> Any:
    """Return the size of a typical step, from a running mean of squares that started at 0.

    Args:
        square: the running mean.
        updates: the number of steps in the mean.
        momentum: the momentum of the running mean.
        epsilon: the smallest result, which avoids a division by 0.

    Example:

    >>> float(compute_step_size(0.25, updates=2.0, momentum=0.5, epsilon=0.0))
    0.5773502588272095
    """
    weights = ops.maximum(1.0 - momentum**updates, 1.0 - momentum)
    return ops.sqrt(square / weights) + epsilon


def compute_gap(change: Any, *, step: Any) -> Any:
    """Return 1 plus the parameter's change in typical steps. Source: Barkai et al. 2020.

    Example:

    >>> compute_gap(-0.5, step=0.25)
    3.0
    """
    return abs(change) / step + 1.0
