"""Flattens a step's metric states into a report, and merges reports into totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.metrics.merging import Merge
from tfps.metrics.state_change import Change

Array = np.ndarray[Any, Any]
Combine = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class MergeGroup(NamedTuple):
    """Variables that are merged together, by a function of their metric's class."""

    variables: Sequence[Any]
    neutral_values: Sequence[Array]  # their values after a reset
    merge: Merge


def flatten_values(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Flatten tensors into one float64 vector, as a step reports them."""
    if not tensors:
        return tf.zeros([0], tf.float64)
    if all(tensor.shape.rank == 0 for tensor in tensors) and len({t.dtype for t in tensors}) == 1:
        return tf.cast(tf.stack(tensors), tf.float64)  # the usual report, in two operations
    return tf.concat([tf.reshape(tf.cast(t, tf.float64), [-1]) for t in tensors], 0)


class MetricTotals:
    """The layout of a program's metric reports, and their totals.

    A step begins with neutral values, zeros for sums, and reports the values at its end, with the
    changes of the states of seed generators.

    If steps run one after the other, each begins with the report of the one before it, and a total
    is the newest report: the states are the same as in one process.

    Args:
        variables: the variables of metrics.
        changes: how a step changes each of them; unused for groups.
        groups: variables that have a function of their own.
        is_sequential: whether steps run one after the other.
        generators: the number of seed generators with an unknown number of draws per step.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        changes: Sequence[Change] = (),
        groups: Sequence[MergeGroup] = (),
        *,
        is_sequential: bool = False,
        generators: int = 0,
    ) -> None:
        self.is_sequential = is_sequential
        changes = changes or [Change.ADDED] * len(variables)
        position = {id(variable): index for index, variable in enumerate(variables)}
        self._groups = [([position[id(v)] for v in g.variables], g.merge) for g in groups]
        own = {
            id(v): base
            for g in groups
            for v, base in zip(g.variables, g.neutral_values, strict=True)
        }
        self.neutral_values = [
            own[id(variable)] if id(variable) in own else _make_neutral(variable, change)
            for variable, change in zip(variables, changes, strict=True)
        ]
        self._combine: dict[int, Combine] = {
            index: tf.maximum if change == Change.RAISED else tf.minimum
            for index, change in enumerate(changes)
            if change in (Change.RAISED, Change.LOWERED) and id(variables[index]) not in own
        }
        self._no_draws = np.zeros([generators, 2])
        self._sizes = [*(base.size for base in self.neutral_values), self._no_draws.size]
        self.items = sum(self._sizes)

    @property
    def empty_total(self) -> Array:
        """The total of no reports: float64 [items]."""
        return self._flatten(self.neutral_values)

    @property
    def are_sums(self) -> bool:
        """Whether a total is the sum of its reports."""
        return not (self._groups or self._combine or self.is_sequential)

    def create_first_total(self, before: Sequence[Array]) -> Array:
        """Return the float64 total before the first step, from the variables' values."""
        return self._flatten(before) if self.is_sequential else self.empty_total

    def read_states(self, report: tf.Tensor) -> list[tf.Tensor]:
        """Return the metric states at the begin of a step, after the previous step's report."""
        if not self.is_sequential:
            return [tf.constant(base) for base in self.neutral_values]
        *parts, _ = tf.split(report, self._sizes)
        return [self._restore_value(part, index) for index, part in enumerate(parts)]

    def report_draws(self, drawn: Sequence[tf.Tensor], report: tf.Tensor) -> list[tf.Tensor]:
        """Return the draws that a step reports: its own, or those of all steps if sequential.

        Args:
            drawn: the change of each generator's state by the step, [2].
            report: the report of the step before it.
        """
        if not (drawn and self.is_sequential):
            return list(drawn)
        *_, before = tf.split(report, self._sizes)
        states = tf.unstack(tf.reshape(before, self._no_draws.shape))
        return [tf.cast(d, tf.float64) + state for d, state in zip(drawn, states, strict=True)]

    def combine(self, total: tf.Tensor, report: tf.Tensor) -> tf.Tensor:
        """Combine a total with one more report."""
        if self.is_sequential:
            return report
        if self.are_sums:
            return total + report
        left, right = tf.split(total, self._sizes), tf.split(report, self._sizes)
        parts = [
            self._combine.get(index, tf.add)(a, b)
            for index, (a, b) in enumerate(zip(left, right, strict=True))
        ]
        for indices, merge in self._groups:
            states = [[self._restore_value(side[i], i) for i in indices] for side in (left, right)]
            for i, value in zip(indices, merge(*states), strict=True):
                parts[i] = tf.reshape(tf.cast(value, tf.float64), [self._sizes[i]])
        return tf.concat(parts, 0)

    def combine_devices(
        self, reports: Sequence[tf.Tensor], shares: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Combine the reports of a worker's devices with positive shares into one report."""
        if len(reports) == 1:
            return reports[0]
        total = tf.constant(self.empty_total)
        for report, share in zip(reports, shares, strict=True):
            total = tf.where(share > 0, self.combine(total, report), total)
        return total

    def compute_values(self, total: Array, before: Sequence[Array]) -> list[Array]:
        """Compute the variables' values after a total, from their values ``before`` it."""
        both = self.combine(tf.constant(self._flatten(before)), tf.constant(total)).numpy()
        parts = np.split(both, np.cumsum(self._sizes)[:-1])
        return [
            part.reshape(base.shape) for part, base in zip(parts, self.neutral_values, strict=False)
        ]

    def read_draws(self, total: Array) -> Array:
        """Read the changes of the generators' states from a total: int64 [generators, 2]."""
        drawn = total[total.size - self._no_draws.size :].reshape(self._no_draws.shape)
        return np.asarray(np.rint(drawn).astype(np.int64))

    def _flatten(self, arrays: Sequence[Array]) -> Array:
        """Flatten the values of variables into a total without draws."""
        flat = [np.ravel(array) for array in (*arrays, self._no_draws)]
        return np.concatenate(flat).astype(np.float64)

    def _restore_value(self, flat: tf.Tensor, index: int) -> tf.Tensor:
        base = self.neutral_values[index]
        return tf.reshape(tf.cast(flat, tf.as_dtype(base.dtype)), base.shape)


def _make_neutral(variable: Any, change: Change) -> Array:
    """Return a value that the first change replaces: zeros, or the dtype's smallest or largest."""
    shape, dtype = tuple(variable.shape), tf.as_dtype(variable.dtype)
    if change not in (Change.RAISED, Change.LOWERED):
        return np.zeros(shape, dtype.as_numpy_dtype)
    is_raised = change == Change.RAISED
    if dtype.is_bool:
        return np.full(shape, not is_raised)
    if dtype.is_floating:
        return np.full(shape, -np.inf if is_raised else np.inf, dtype.as_numpy_dtype)
    return np.full(shape, dtype.min if is_raised else dtype.max, dtype.as_numpy_dtype)
