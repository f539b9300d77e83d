"""What workers report of their metrics as one vector, and how reports become totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.metrics.merging import Merging

Array = np.ndarray[Any, Any]


def end_to_end(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Numbers as a step reports them: float64 [items]."""
    if not tensors:
        return tf.zeros([0], tf.float64)
    if all(tensor.shape.rank == 0 for tensor in tensors) and len({t.dtype for t in tensors}) == 1:
        return tf.cast(tf.stack(tensors), tf.float64)  # the usual report, in two operations
    return tf.concat([tf.reshape(tf.cast(t, tf.float64), [-1]) for t in tensors], 0)


class MetricTotals:
    """The layout of a program's metric reports.

    A report holds, for each variable, what a step has added to its value after a reset; or, where
    states are merged, the value itself. At its end stands, for each unproven metric, whether its
    states were found not to add up.
    """

    def __init__(self, variables: Sequence[Any], bases: Sequence[Array], merging: Merging) -> None:
        self.bases = list(bases)
        self._position = {id(variable): index for index, variable in enumerate(variables)}
        self._groups = [
            (self._positions(state), state.merge) for state in merging.merged if self._knows(state)
        ]
        self._merged = {index for indices, _ in self._groups for index in indices}
        self.unproven = [m for m in merging.unproven if m.variables and self._knows(m)]
        self._sizes = [*(base.size for base in self.bases), len(self.unproven)]
        self.items = sum(self._sizes)

    def _knows(self, state: Any) -> bool:
        return all(id(v) in self._position for v in state.variables)

    def _positions(self, state: Any) -> list[int]:
        return [self._position[id(v)] for v in state.variables]

    @property
    def empty(self) -> Array:
        """The total of no reports: float64 [items]."""
        parts = [
            base.ravel() if index in self._merged else np.zeros(base.size)
            for index, base in enumerate(self.bases)
        ]
        return np.concatenate([*parts, np.zeros(len(self.unproven))]).astype(np.float64)

    @property
    def are_sums(self) -> bool:
        """Whether a total is the sum of its reports: no states are merged."""
        return not self._groups

    def bases_of(self, metric: Any) -> list[Array]:
        """The values of a metric's variables after a reset."""
        return [self.bases[position] for position in self._positions(metric)]

    def report(self, values: Sequence[tf.Tensor], refused: Sequence[tf.Tensor]) -> tf.Tensor:
        """A step's report, from the values after it and a boolean for each unproven metric."""
        parts = [
            value - tf.constant(base) if base.any() and index not in self._merged else value
            for index, (value, base) in enumerate(zip(values, self.bases, strict=True))
        ]
        return end_to_end([*parts, *refused])

    def combine(self, total: tf.Tensor, report: tf.Tensor) -> tf.Tensor:
        """A total that includes one more report."""
        if self.are_sums:
            return total + report
        left, right = tf.split(total, self._sizes), tf.split(report, self._sizes)
        parts = [a + b for a, b in zip(left, right, strict=True)]
        for indices, merge in self._groups:
            states = [[self._value(side[i], i) for i in indices] for side in (left, right)]
            for i, value in zip(indices, merge(*states), strict=True):
                parts[i] = tf.reshape(tf.cast(value, tf.float64), [self._sizes[i]])
        return tf.concat(parts, 0)

    def of_devices(self, reports: Sequence[tf.Tensor], shares: Sequence[tf.Tensor]) -> tf.Tensor:
        """The report of a step from those of a worker's devices that have a share of the batch."""
        if len(reports) == 1:
            return reports[0]
        total = tf.constant(self.empty)
        for report, share in zip(reports, shares, strict=True):
            total = tf.where(share > 0, self.combine(total, report), total)
        return total

    def values(self, total: Array, before: Sequence[Array]) -> list[Array]:
        """What the variables hold after a total, if they held ``before`` at its first report."""
        parts = np.split(total, np.cumsum(self._sizes)[:-1])
        values = [
            np.asarray(old, np.float64) + part.reshape(old.shape)
            for old, part in zip(before, parts, strict=False)
        ]
        for indices, merge in self._groups:
            new = [self._value(tf.constant(parts[i]), i) for i in indices]
            if any((before[i] != self.bases[i]).any() for i in indices):
                new = list(merge([self._value(tf.constant(before[i]), i) for i in indices], new))
            for i, value in zip(indices, new, strict=True):
                values[i] = np.asarray(value, np.float64).reshape(self.bases[i].shape)
        return values

    def refused(self, total: Array) -> list[Any]:
        """The metrics whose states do not add up."""
        flags = total[total.size - len(self.unproven) :]
        return [metric for metric, flag in zip(self.unproven, flags, strict=True) if flag]

    def _value(self, flat: tf.Tensor, index: int) -> tf.Tensor:
        base = self.bases[index]
        return tf.reshape(tf.cast(flat, tf.as_dtype(base.dtype)), base.shape)
