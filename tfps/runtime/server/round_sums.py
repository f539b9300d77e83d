"""What contributions to a round add up to for one variable: all of it, or the rows that came."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

# Makes a variable on the server: from its first value, what it is of the sum, and options.
Create = Callable[..., Any]


class RoundSum(Protocol):
    """The sum of one tensor of the contributions; used under the server's mutex."""

    def add(self, value: Any, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        """Trace that a contribution of so much weight comes; the first one of a round begins it."""

    def mean(self, weight: tf.Tensor) -> Any:
        """Trace the sum divided by the weights of all contributions."""

    def clear(self) -> None:
        """Trace that it needs no memory until the next round, as far as it can."""


class WholeSum:
    """The sum of whole tensors; of what is no number the newest.

    Args:
        dtype: of them.
        shape: of them.
        create: makes the variable that holds it.
    """

    def __init__(self, dtype: tf.DType, shape: tf.TensorShape, *, create: Create) -> None:
        self._sum = create(functools.partial(tf.zeros, shape, dtype), "sum", dtype=dtype)

    def add(self, value: tf.Tensor, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        value = tf.cast(_weighted(value, weight), self._sum.dtype)
        if self._sum.dtype.is_bool:
            self._sum.assign(value, read_value=False)
        else:
            # Not 0 * old: what an earlier round has left may be no number.
            old = self._sum.read_value()
            self._sum.assign(tf.where(is_first, value, old + value), read_value=False)

    def mean(self, weight: tf.Tensor) -> tf.Tensor:
        return _mean(self._sum.read_value(), weight)

    def clear(self) -> None:
        """Its memory stays for the next round."""


class RowSum:
    """The sum of rows of a table; each row that came in the round is there once, and no other.

    Args:
        native: the variable whose rows come.
        create: makes the variables that hold it.
    """

    def __init__(self, native: Any, *, create: Create) -> None:
        self._shape = native.shape

        def variable(kind: str, dtype: tf.DType, *, row_shape: Sequence[int]) -> Any:
            none = functools.partial(tf.zeros, [0, *row_shape], dtype)
            return create(none, kind, dtype=dtype, shape=tf.TensorShape([None, *row_shape]))

        self._places = variable("places", tf.int64, row_shape=())
        self._rows = variable("rows", native.dtype, row_shape=native.shape[1:].as_list())

    def add(self, value: tf.IndexedSlices, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        kept = tf.where(is_first, 0, tf.size(self._places.read_value()))
        places = tf.concat([self._places.read_value()[:kept], value.indices], 0)
        own = tf.cast(_weighted(value.values, weight), self._rows.dtype)
        rows = [self._rows.read_value()[:kept], own]
        distinct, positions = tf.unique(places)
        sums = tf.math.unsorted_segment_sum(tf.concat(rows, 0), positions, tf.size(distinct))
        self._hold(distinct, sums)

    def mean(self, weight: tf.Tensor) -> tf.IndexedSlices:
        shape = tf.constant(self._shape.as_list(), tf.int64)
        rows = _mean(self._rows.read_value(), weight)
        return tf.IndexedSlices(rows, self._places.read_value(), shape)

    def clear(self) -> None:
        self._hold(tf.zeros([0], tf.int64), tf.zeros([0, *self._rows.shape[1:]], self._rows.dtype))

    def _hold(self, places: tf.Tensor, rows: tf.Tensor) -> None:
        self._places.assign(places, read_value=False)
        self._rows.assign(rows, read_value=False)


def _weighted(tensor: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    return tensor * tf.cast(weight, tensor.dtype) if tensor.dtype.is_floating else tensor


def _mean(total: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    return total / tf.cast(weight, total.dtype) if total.dtype.is_floating else total
