"""What papers do with a stale gradient, item by item. Pure: numbers, arrays and tensors alike.

``moved`` is how far a parameter has moved since the worker was handed it: now minus then. Where it
is 0 the gradient is not stale, and every formula answers what it was given, to the bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from keras import ops


def compensated(gradient: Any, *, moved: Any, strength: Any) -> Any:
    """The gradient at the parameters of now, to first order.

    The square of the gradient stands for the diagonal of the Hessian. Source: Zheng et al. 2017,
    equation 10 (DC-ASGD).

    Example:

    >>> compensated(0.5, moved=2.0, strength=0.1)
    0.55
    """
    # In this order, so that what has not moved adds 0 however large the gradient is.
    return gradient + strength * moved * gradient * gradient


def mean_square(before: Any, value: Any, *, momentum: float) -> Any:
    """A running mean of squares.

    Example:

    >>> mean_square(1.0, 3.0, momentum=0.75)
    3.0
    """
    return momentum * before + (1.0 - momentum) * value * value


def adaptive_strength(strength: float, square: Any, *, epsilon: float) -> Any:
    """The strength of a compensation for gradients of a mean square. Source: Zheng et al. 2017.

    Example:

    >>> float(adaptive_strength(2.0, 4.0, epsilon=0.0))
    1.0
    """
    return strength / ops.sqrt(square + epsilon)


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


class Revised(NamedTuple):
    """What a revision changes: two accumulators, and what a parameter is decreased by."""

    square: Any
    largest: Any
    decrease: Any


def revised(
    gradient: Any,
    *,
    missed: Any,
    square: Any,
    largest: Any,
    learning_rate: Any,
    epsilon: float,
) -> Revised:
    """A step of AdaptiveRevision, which also revises the steps of the gradients in between.

    Source: McMahan and Streeter 2014.

    Args:
        gradient: of a loss.
        missed: the sum of the gradients that were applied since the parameters were read.
        square: z of the paper: squares, and twice the products with what was missed.
        largest: z' of the paper: the largest z so far.
        learning_rate: alpha of the paper.
        epsilon: added to z' before its root is taken.

    Example:

    >>> found = revised(
    ...     3.0, missed=0.0, square=7.0, largest=7.0, learning_rate=2.0, epsilon=0.0
    ... )
    >>> found.square, float(found.largest), float(found.decrease)
    (16.0, 16.0, 1.5)
    """
    square = square + (gradient * gradient + 2.0 * gradient * missed)
    after = ops.maximum(largest, square)
    fall = ops.rsqrt(largest + epsilon) - ops.rsqrt(after + epsilon)
    # Written as in Keras, so that TensorFlow makes of it what it makes of Adagrad.
    decrease = learning_rate * gradient / ops.sqrt(after + epsilon)
    return Revised(square, after, decrease - learning_rate * fall * missed)
