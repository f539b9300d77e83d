"""Combines the rows that an example has looked up into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Total = Callable[[Any], Any]  # sums the numbers or rows of all ids of each example

# The divisor of the sum of the weighted rows; None for no division, or no sum.
COMBINERS: dict[str | None, Callable[[Any, Total], Any] | None] = {
    "sum": None,
    "mean": lambda weights, total: total(weights),
    "sqrtn": lambda weights, total: tf.sqrt(total(weights * weights)),
    None: None,
}


def multiply_by_weights(rows: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    """Multiply each row by its weight."""
    return rows if weights is None else rows * weights[..., None]


def combine_rows(
    rows: tf.Tensor, weights: tf.Tensor | None, *, combiner: str, total: Total
) -> tf.Tensor:
    """Return one row for each example; zeros if it has no ids, or weights with the sum zero.

    Args:
        rows: a row for each id.
        weights: a number for each id, in the rows' dtype; None if all are 1.
        combiner: one of `COMBINERS`, not None.
        total: returns the sums by example.

    Example: one example with two rows.

    >>> rows = tf.constant([[[1.0, 2.0], [3.0, 6.0]]])
    >>> total = lambda values: tf.reduce_sum(values, 1)
    >>> combine_rows(rows, None, combiner="mean", total=total).numpy().tolist()
    [[2.0, 4.0]]
    """
    summed = total(multiply_by_weights(rows, weights))
    divisor = COMBINERS[combiner]
    if divisor is None:
        return summed
    weights = tf.ones(tf.shape(rows)[:-1], rows.dtype) if weights is None else weights
    return tf.math.divide_no_nan(summed, divisor(weights, total)[..., None])
