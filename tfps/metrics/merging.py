"""Which metrics can be added up, and how the states of the others become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tfps.errors import ConfigError, UnsupportedError

Merge = Callable[[list[Any], list[Any]], Sequence[Any]]

_registered: dict[type, Merge] = {}


def register_merge(cls: type[keras.metrics.Metric], fn: Merge) -> None:
    """Say how two states of a metric become one, where their sum would be wrong.

    Workers count batches into states of their own, which the servers bring together. States of
    Keras's own metrics are added; so are those of other classes if that is right for the first
    batch. Any other class needs a merge: a function given here, or its own method
    ``merge_state(metrics)``. Subclasses inherit it.

    Args:
        cls: the metric's class.
        fn: from two states to the merged one. A state is a list of tensors in the order of
            ``metric.variables``, in their shapes and dtypes. It is traced by TensorFlow, so it uses
            `keras.ops` or TensorFlow's. One of the states may be that of a metric after a reset.

    Raises:
        ConfigError: ``cls`` is no metric class, or ``fn`` cannot be called.

    Example:

    ```python
    class Largest(keras.metrics.Metric):
        def __init__(self, name="largest"):
            super().__init__(name=name)
            self.largest = self.add_variable((), "zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

        def result(self):
            return self.largest

    tfps.metrics.register_merge(
        Largest, lambda left, right: [keras.ops.maximum(left[0], right[0])]
    )
    ```
    """
    if not (isinstance(cls, type) and issubclass(cls, keras.metrics.Metric)):
        raise ConfigError(f"cls: received {cls!r}, expected a subclass of keras.metrics.Metric")
    if not callable(fn):
        raise ConfigError(f"fn: received {fn!r}, expected a function of two states")
    _registered[cls] = fn


@dataclass(frozen=True)
class MergedState:
    """Keras variables whose values become one by a function instead of a sum."""

    variables: tuple[Any, ...]
    merge: Merge


@dataclass(frozen=True)
class Merging:
    """What is known of a model's metrics.

    Attributes:
        merged: states with a function of their own; all others are added.
        unproven: metrics of other people's classes that are added, if that turns out to be right.
    """

    merged: tuple[MergedState, ...] = ()
    unproven: tuple[Any, ...] = ()


def merging_of(metrics: Iterable[Any]) -> Merging:
    """How the states of metrics, and of those inside them, become one."""
    merged: list[MergedState] = []
    unproven: list[Any] = []

    def visit(metric: Any) -> None:
        merge = _merge_of(metric)
        if merge is not None:
            merged.append(MergedState(tuple(metric.variables), merge))
            return
        if not type(metric).update_state.__module__.startswith("keras."):
            unproven.append(metric)
        for inner in getattr(metric, "metrics", None) or metric._metrics:
            visit(inner)

    for metric in metrics:
        visit(metric)
    return Merging(tuple(merged), tuple(unproven))


def not_additive(metric: Any) -> UnsupportedError:
    """The error for a metric whose states cannot be added."""
    name = type(metric).__name__
    return UnsupportedError(
        f"the metric {metric.name!r} ({name}) cannot be counted by several workers: updated with "
        "the two halves of the first batch, its state was not the sum of what each half gives. "
        f"Say how two states become one with tfps.metrics.register_merge({name}, fn), or give "
        f"{name} a method merge_state(self, metrics)."
    )


def _merge_of(metric: Any) -> Merge | None:
    for cls in type(metric).__mro__:
        if cls in _registered:
            return _registered[cls]
    return _by_own_method(metric) if hasattr(metric, "merge_state") else None


def _by_own_method(metric: Any) -> Merge:
    """`merge_state` changes its own object by those that it is given; here both are stand-ins."""
    other = _stand_in(metric)

    def merge(left: list[Any], right: list[Any]) -> list[Any]:
        mapping = [
            *zip(metric.variables, left, strict=True),
            *zip(other.variables, right, strict=True),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            metric.merge_state([other])
        return [scope.get_current_value(variable) for variable in metric.variables]

    return merge


def _stand_in(metric: Any) -> Any:
    """A metric with variables of its own; its class may not be made from a configuration."""

    def twin_of(value: Any) -> Any:
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
            twin.__dict__.update({name: twin_of(part) for name, part in vars(value).items()})
            return twin
        if isinstance(value, (list, tuple)):
            return [twin_of(part) for part in value]
        if isinstance(value, dict):
            return {name: twin_of(part) for name, part in value.items()}
        return value

    twins: dict[int, Any] = {}
    return twin_of(metric)
