"""Sums over the devices of a worker, weighted by what each has contributed to a step.

A *share* is how many times the mean part a device's part of the batch is: 1 where all are equal, 0
for a part with nothing of its own. The shares of a step add up to the number of devices. Keras
divides losses by the number of replicas, so gradients weighted by shares add up to the gradient of
the mean over all examples, however unequal the parts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def sum_of(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum; also of integers, and of one value."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def weighted_sum(values: Sequence[tf.Tensor], shares: Sequence[tf.Tensor]) -> tf.Tensor:
    """The sum of values times their shares; a value without a share does not count, NaN or not."""
    return sum_of(
        [
            tf.where(share > 0, value * tf.cast(share, value.dtype), tf.zeros_like(value))
            for value, share in zip(values, shares, strict=True)
        ]
    )


def mean_of(values: Sequence[tf.Tensor], shares: Sequence[tf.Tensor]) -> tf.Tensor:
    """The mean of values, weighted by their shares."""
    return weighted_sum(values, shares) / tf.cast(len(values), values[0].dtype)


def gradients_together(
    parts: Sequence[Sequence[tf.Tensor]],
    shares: Sequence[tf.Tensor],
    *,
    variables: Sequence[Any],
) -> list[tf.Tensor]:
    """The gradients of a step from those that each device has computed.

    Args:
        parts: for each device a dense gradient of each variable.
        shares: of the devices.
        variables: of Keras; what overwrites a variable is a value and no gradient.
    """
    if len(parts) == 1:
        return list(parts[0])
    return [
        mean_of(each, shares) if variable.overwrite_with_gradient else weighted_sum(each, shares)
        for variable, *each in zip(variables, *parts, strict=True)
    ]
