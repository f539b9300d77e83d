"""Finds the metric states that a step touches, and how the states of workers are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfps.errors import UnsupportedError
from tfps.metrics.merging import cannot_sum_error, merged_states
from tfps.metrics.state_change import Change
from tfps.runtime.program.metric_totals import MergeGroup, MetricTotals
from tfps.runtime.program.state_changes import StateChanges

# How a step may change a state so that reports of `fit` can be merged.
MERGEABLE = (Change.KEPT, Change.ADDED, Change.RAISED, Change.LOWERED)
ADDED = (Change.KEPT, Change.ADDED)


class MetricStates:
    """The metric states in the trace of a step.

    Args:
        graph: the graph of the step.
        touched: the variables of metrics that it reads or writes.
        metrics: the Keras metrics with these variables, as far as they are known.
        handle_of: returns the step's resource for a variable.

    Attributes:
        variables: the touched variables, and all of a state that is merged as a whole.
    """

    def __init__(
        self,
        graph: Any,
        *,
        touched: Sequence[Any],
        metrics: Sequence[Any] = (),
        handle_of: Callable[[Any], tf.Tensor],
    ) -> None:
        known = {id(variable) for variable in touched}
        self._groups = [
            MergeGroup(state.variables, state.after_reset(), state.merge)
            for state in merged_states(metrics)
            if any(id(v) in known for v in state.variables)
        ]
        grouped = [v for group in self._groups for v in group.variables]
        self.variables = [*touched, *(v for v in grouped if id(v) not in known)]
        self.specs = [tf.TensorSpec(tuple(v.shape), v.dtype) for v in self.variables]
        self.handles = [handle_of(v) for v in self.variables]
        self._metrics, self._grouped = metrics, {id(variable) for variable in grouped}
        self._found = StateChanges(graph, handles=self.handles, specs=self.specs)

    def create_totals(self, *, is_sequential: bool, generators: int) -> MetricTotals:
        """Create the object that merges the reports of steps into totals.

        Args:
            is_sequential: whether the steps run one after the other.
            generators: see `MetricTotals`.

        Raises:
            UnsupportedError: several workers or devices count, and the states of a metric cannot be
                merged.
        """
        if is_sequential:
            return MetricTotals(self.variables, is_sequential=True, generators=generators)
        self.refuse_other_changes(MERGEABLE)
        return MetricTotals(
            self.variables, self._found.changes, self._groups, generators=generators
        )

    def refuse_uses(self, uses: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        """Raise an `UnsupportedError` if a metric decides what the step trains or assigns.

        Args:
            uses: variables, each with what it is trained with, or with its own resource.
        """
        for variable, tensors in uses:
            if any(map(self._found.depends_on_state, tensors)):
                raise UnsupportedError(
                    f"{variable.path}: received a step that changes the variable by the "
                    "state of a metric, expected one that only computes results from metrics, "
                    "since in a step of several workers or devices a metric holds one batch. "
                    "Keep the state in a weight that the step assigns "
                    "(self.add_weight(trainable=False)), read the metric in a callback, or train "
                    "with one worker that has one device."
                )

    def refuse_other_changes(self, changes: Sequence[Change]) -> None:
        """Raise an `UnsupportedError` if a state is changed in a way other than the given ones."""
        for variable, change in zip(self.variables, self._found.changes, strict=True):
            if change not in changes and id(variable) not in self._grouped:
                raise cannot_sum_error(variable, self._metrics)
