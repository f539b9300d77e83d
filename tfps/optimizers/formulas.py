"""Formulas from papers for stale gradients, item by item. Pure: numbers, arrays and tensors."""

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


def move_ahead(momentum: Any, *, step: Any, decay: Any) -> tuple[Any, Any]:
    """Return a worker's next momentum, and the change of the parameter that workers are sent.

    The parameter is the one that all momenta will reach. Source: DANA-Slim, Hakimi et al. 2019.

    Args:
        momentum: the worker's momentum, which is added to parameters.
        step: the step without momentum, which is subtracted.
        decay: the factor of the momentum.

    Example:

    >>> move_ahead(-2.0, step=0.5, decay=0.5)
    (-1.5, -1.25)
    """
    moved = momentum * decay - step
    return moved, moved * decay - step


def move_in_order(
    momentum: Any, *, step: Any, decay: Any, rounds_late: Any, begins_round: Any
) -> tuple[Any, Any]:
    """Return the next momentum of all workers, and the change of the parameter.

    A late step counts as if it had arrived in its own round: the momentum has less of it, and the
    parameter gets what the momentum would have added since. Source: OrMo, Shi, Yang and Li 2024.

    Args:
        momentum: the momentum, which is added to parameters.
        step: the step without momentum, which is subtracted.
        decay: the factor of the momentum, once in each round.
        rounds_late: the number of rounds that have begun since the step's parameters were read.
        begins_round: 1 if the step is the first one of a round, else 0.

    Example:

    >>> move_in_order(-2.0, step=0.5, decay=0.5, rounds_late=1, begins_round=1)
    (-1.25, -1.75)
    """
    carried = decay * begins_round
    arrived = decay**rounds_late * step
    missed = (1.0 - decay ** (rounds_late + 1)) / (1.0 - decay) * step
    return (carried + 1.0 - begins_round) * momentum - arrived, carried * momentum - missed
