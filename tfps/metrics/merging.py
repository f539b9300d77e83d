"""Merges the states of metrics that cannot be added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tfps.errors import ConfigError, UnsupportedError

Merge = Callable[[list[Any], list[Any]], Sequence[Any]]
Array = np.ndarray[Any, Any]

_registered: dict[type, Merge] = {}


def register_merge(cls: type[keras.metrics.Metric], fn: Merge) -> None:
    """Register a function that merges two states of a metric whose sum would be wrong.

    Use it for a metric of your own whose update neither adds to its state nor takes a maximum or
    minimum. Each worker counts batches into its own state, and the servers merge the states. States
    to which updates add, such as those of Keras's own metrics, are added; if an update takes the
    maximum or minimum of the state and another value, so does the merge. `fit` finds this out from
    the graph of the step. Any other class needs a merge: a function registered here, or its own
    method ``merge_state(metrics)``. Subclasses inherit it.

    Args:
        cls: the metric's class.
        fn: maps two states to the merged one. A state is a list of tensors in the order of
            ``metric.variables``, with their shapes and dtypes. TensorFlow traces the function, so
            use operations of `keras.ops` or TensorFlow. One state may be that of a reset metric.

    Raises:
        ConfigError: ``cls`` is no metric class, or ``fn`` is not callable.

    Example:

    >>> class LargestError(keras.metrics.Metric):  # in absolute value, with its sign
    ...     def __init__(self, name="largest_error"):
    ...         super().__init__(name=name)
    ...         self.error = self.add_variable((), "zeros")
    ...
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         errors = keras.ops.append(y_pred - y_true, self.error)
    ...         self.error.assign(errors[keras.ops.argmax(keras.ops.abs(errors))])
    ...
    ...     def result(self):
    ...         return self.error
    >>> def larger(left, right):
    ...     is_left = keras.ops.abs(left[0]) >= keras.ops.abs(right[0])
    ...     return [keras.ops.where(is_left, left[0], right[0])]
    >>> register_merge(LargestError, larger)
    """
    if not (isinstance(cls, type) and issubclass(cls, keras.metrics.Metric)):
        raise ConfigError(f"cls: received {cls!r}, expected a subclass of keras.metrics.Metric")
    if not callable(fn):
        raise ConfigError(f"fn: received {fn!r}, expected a function that merges two states")
    _registered[cls] = fn


@dataclass(frozen=True)
class MergedState:
    """A metric and the function that merges the values of its variables."""

    metric: Any
    merge: Merge

    @property
    def variables(self) -> tuple[Any, ...]:
        return tuple(self.metric.variables)

    def after_reset(self) -> list[Array]:
        """Return the values of a state after a reset, without changing the metric."""
        with keras.StatelessScope() as scope:
            self.metric.reset_state()
        values = [scope.get_current_value(v) for v in self.metric.variables]
        return [
            np.asarray(variable._value.numpy() if value is None else value)
            for variable, value in zip(self.metric.variables, values, strict=True)
        ]


def merged_states(metrics: Iterable[Any]) -> list[MergedState]:
    """Return the metrics, and metrics inside them, that have their own merge function."""
    states: list[MergedState] = []
    for metric in metrics:
        merge = _find_merge(metric)
        if merge is not None:
            states.append(MergedState(metric, merge))
        else:
            states += merged_states(_inner_metrics(metric))
    return states


def cannot_sum_error(variable: Any, metrics: Iterable[Any]) -> UnsupportedError:
    """Return the error for a state that several workers cannot count.

    Args:
        variable: a variable of the state.
        metrics: the metrics in which to look for the owner of the variable.
    """
    owner = _find_owner(variable, metrics)
    if owner is None:
        return UnsupportedError(
            f"{variable.path}: received an update of a metric's state, in a scheduled function, "
            "that is not a sum; expected an update that adds a value of the batch, since workers "
            "and devices update the state in any order. Return the value of the batch from the "
            "function and combine the fetched values, update the metric in fit() or evaluate(), "
            "or train with one worker that has one device."
        )
    name = type(owner).__name__
    return UnsupportedError(
        f"metric {owner.name!r} ({name}): received an update_state() whose result for "
        f"{variable.path} depends on the order of the batches; expected one that adds to the "
        "state (assign_add), or takes the maximum or minimum of the state and a value of the "
        "batch, so that the states of several workers can be merged. Change update_state(), "
        f"register a merge of two states with tfps.metrics.register_merge({name}, fn), or give "
        f"{name} a method merge_state(self, metrics)."
    )


def _inner_metrics(metric: Any) -> Sequence[Any]:
    inner: Sequence[Any] = getattr(metric, "metrics", None) or metric._metrics
    return inner


def _find_owner(variable: Any, metrics: Iterable[Any]) -> Any:
    """Return the innermost metric that has a variable, or None."""
    for metric in metrics:
        if any(each is variable for each in metric.variables):
            return _find_owner(variable, _inner_metrics(metric)) or metric
    return None


def _find_merge(metric: Any) -> Merge | None:
    for cls in type(metric).__mro__:
        if cls in _registered:
            return _registered[cls]
    return _use_own_method(metric) if hasattr(metric, "merge_state") else None


def _use_own_method(metric: Any) -> Merge:
    """Return a merge function that calls `merge_state` of a metric without changing the metric."""
    other = _make_copy(metric)

    def merge(left: list[Any], right: list[Any]) -> list[Any]:
        mapping = [
            *zip(metric.variables, left, strict=True),
            *zip(other.variables, right, strict=True),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            metric.merge_state([other])
        return [scope.get_current_value(variable) for variable in metric.variables]

    return merge


def _make_copy(metric: Any) -> Any:
    """Return a copy of a metric with its own variables; works without `from_config`."""

    def make_twin(value: Any) -> Any:
        if isinstance(value, keras.Variable):
            if id(value) not in twins:
                twins[id(value)] = keras.Variable(
                    np.zeros(value.shape),
                    dtype=value.dtype,
                    trainable=False,
                    synchronization="on_read",
                    name=value.name,
                )
            return twins[id(value)]
        if isinstance(value, keras.metrics.Metric):
            twin = object.__new__(type(value))
            twin.__dict__.update({name: make_twin(part) for name, part in vars(value).items()})
            return twin
        if isinstance(value, (list, tuple)):
            return [make_twin(part) for part in value]
        if isinstance(value, dict):
            return {name: make_twin(part) for name, part in value.items()}
        return value

    twins: dict[int, Any] = {}
    return make_twin(metric)
