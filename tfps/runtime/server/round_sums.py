"""Sums the contributions to a round for one variable: whole tensors, rows, or moves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfps.runtime.message.moved_state import MovedState, ShardMove

# Creates a variable on the server from its first value, its part in the sum, and options.
Create = Callable[..., Any]


class RoundSum(Protocol):
    """A sum of one tensor of the contributions; used under the server's mutex."""

    def add(self, value: Any, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        """Trace adding a weighted contribution; the first one of a round replaces the sum."""

    def mean(self, weight: tf.Tensor) -> Any:
        """Trace dividing the sum by the total weight of the contributions."""

    def clear(self) -> None:
        """Trace freeing the sum's memory until the next round, if that is possible."""


class WholeSum:
    """The sum of whole tensors, or the newest value if they are bools.

    Args:
        dtype: the type of the tensors.
        shape: the shape of the tensors.
        create: creates the variable that holds the sum.
    """

    def __init__(self, dtype: tf.DType, shape: tf.TensorShape, *, create: Create) -> None:
        self._sum = create(functools.partial(tf.zeros, shape, dtype), "sum", dtype=dtype)

    def add(self, value: tf.Tensor, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        value = tf.cast(_apply_weight(value, weight), self._sum.dtype)
        if self._sum.dtype.is_bool:
            self._sum.assign(value, read_value=False)
        else:
            # Not 0 * old: an earlier round may have left NaN.
            old = self._sum.read_value()
            self._sum.assign(tf.where(is_first, value, old + value), read_value=False)

    def mean(self, weight: tf.Tensor) -> tf.Tensor:
        return _divide(self._sum.read_value(), weight)

    def clear(self) -> None:
        """Do nothing: the memory stays for the next round."""


class MeanOfNewValues(WholeSum):
    """The mean of a variable's values after each batch of a round; the round moves it once."""

    def add(self, value: MovedState, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        super().add(value.new, weight, is_first=is_first)


class VarianceOfExamples(MeanOfNewValues):
    """The variance of all examples of a round, from each batch's variance about its center.

    This is the mean of the batches' variances plus the variance of their centers.

    Source: West, "Updating Mean and Variance Estimates: An Improved Method", CACM 1979.
    """

    def __init__(
        self, dtype: tf.DType, shape: tf.TensorShape, *, kept: float, create: Create
    ) -> None:
        super().__init__(dtype, shape, create=create)
        self._kept = kept
        zeros = functools.partial(tf.zeros, shape, tf.float64)
        self._centers = create(zeros, "centers", dtype=tf.float64)
        self._spread = create(zeros, "spread", dtype=tf.float64)
        self._weight = create(0.0, "weight", dtype=tf.float64)

    def add(self, value: MovedState, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        super().add(value, weight, is_first=is_first)
        known = tf.where(is_first, tf.zeros([], tf.float64), self._weight.read_value())
        total = known + weight
        new = tf.cast(value.center, tf.float64)
        old = tf.where(is_first, new, self._centers.read_value())
        spread = tf.where(is_first, tf.zeros_like(new), self._spread.read_value())
        share = tf.math.divide_no_nan(weight, total)
        self._spread.assign(spread + known * share * tf.square(new - old), read_value=False)
        self._centers.assign(old + share * (new - old), read_value=False)
        self._weight.assign(total, read_value=False)

    def mean(self, weight: tf.Tensor) -> tf.Tensor:
        # Centers have moved a part of the way, so their variance shrinks by its square.
        between = self._spread.read_value() / weight / (1 - self._kept)
        mean = super().mean(weight)
        return mean + tf.cast(between, mean.dtype)


class SequentialMoves:
    """The value of a variable after the moves of all contributions, in the order of arrival."""

    def __init__(self, native: Any, *, create: Create) -> None:
        self._native = native
        zeros = functools.partial(tf.zeros, native.shape, native.dtype)
        self._value = create(zeros, "sum", dtype=native.dtype)

    def add(self, value: MovedState, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        old = tf.where(is_first, self._native.read_value(), self._value.read_value())
        self._value.assign(value.apply_to(old), read_value=False)

    def mean(self, weight: tf.Tensor) -> MovedState:
        value = self._value.read_value()
        return MovedState(value, begin=value, kept_fraction=tf.zeros([], tf.float64))

    def clear(self) -> None:
        """Do nothing: the memory stays for the next round."""


def create_move_sum(move: ShardMove, *, create: Create, in_sequence: bool) -> RoundSum:
    """Create the sum for the moves of a variable in a round.

    Args:
        move: how a step moves the variable.
        create: creates the variables that hold the sum.
        in_sequence: apply each worker's moves one after the other, as those of a period.
    """
    native, pace = move.shard._value, move.pace
    if in_sequence or pace.only_adds or not native.dtype.is_floating:
        return SequentialMoves(native, create=create)
    if move.has_center and pace.kept is not None:
        return VarianceOfExamples(native.dtype, native.shape, kept=pace.kept, create=create)
    return MeanOfNewValues(native.dtype, native.shape, create=create)


class RowSum:
    """The sum of rows of a table, with one entry for each row that came in the round.

    Args:
        native: the table's variable.
        create: creates the variables that hold the sum.
    """

    def __init__(self, native: Any, *, create: Create) -> None:
        self._shape = native.shape

        def variable(kind: str, dtype: tf.DType, *, row_shape: Sequence[int]) -> Any:
            none = functools.partial(tf.zeros, [0, *row_shape], dtype)
            return create(none, kind, dtype=dtype, shape=tf.TensorShape([None, *row_shape]))

        self._places = variable("places", tf.int64, row_shape=())
        self._rows = variable("rows", native.dtype, row_shape=native.shape[1:].as_list())

    def add(self, value: tf.IndexedSlices, weight: tf.Tensor, *, is_first: tf.Tensor) -> None:
        count = tf.where(is_first, 0, tf.size(self._places.read_value()))
        places = tf.concat([self._places.read_value()[:count], value.indices], 0)
        own = tf.cast(_apply_weight(value.values, weight), self._rows.dtype)
        rows = [self._rows.read_value()[:count], own]
        distinct, positions = tf.unique(places)
        sums = tf.math.unsorted_segment_sum(tf.concat(rows, 0), positions, tf.size(distinct))
        self._store(distinct, sums)

    def mean(self, weight: tf.Tensor) -> tf.IndexedSlices:
        shape = tf.constant(self._shape.as_list(), tf.int64)
        rows = _divide(self._rows.read_value(), weight)
        return tf.IndexedSlices(rows, self._places.read_value(), shape)

    def clear(self) -> None:
        self._store(tf.zeros([0], tf.int64), tf.zeros([0, *self._rows.shape[1:]], self._rows.dtype))

    def _store(self, places: tf.Tensor, rows: tf.Tensor) -> None:
        self._places.assign(places, read_value=False)
        self._rows.assign(rows, read_value=False)


def _apply_weight(tensor: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    return tensor * tf.cast(weight, tensor.dtype) if tensor.dtype.is_floating else tensor


def _divide(total: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    return total / tf.cast(weight, total.dtype) if total.dtype.is_floating else total
