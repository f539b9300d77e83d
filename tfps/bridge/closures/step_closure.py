"""A closure of a `tf.function`; one like the last one is copied, and runs together with it."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.run_plan import StepTimes

if TYPE_CHECKING:
    from tfps.bridge.closures.step_run import RunFunction

# Values that select a trace by their type, which cannot change.
FIXED_ARGUMENTS = (tf.distribute.experimental.coordinator.PerWorkerValues, tf.Tensor)


class StepKind:
    """The closures of one trace of a function.

    Attributes:
        times: how long they took.
        run: the function that does the steps of several; None: they run one by one.
        is_considered: whether it was, or is being, found out if they can run together.
    """

    def __init__(self) -> None:
        self.times = StepTimes()
        self.run: RunFunction | None = None
        self.is_considered = False


class StepClosure(private.Closure):
    """A closure of a `tf.function`, as `ClusterCoordinator.schedule` queues it.

    Args:
        function: the `tf.function`, traced here if it has no trace for the arguments.
        args: positional arguments.
        kwargs: keyword arguments.
        strategy: the strategy in whose scope it is traced.
        manager: cancels the closure.
    """

    kind: StepKind
    runs_alone = False  # whether it was in a run whose worker was lost

    def __init__(
        self, function: Any, args: Any, kwargs: Any, *, strategy: Any, manager: Any
    ) -> None:
        with strategy.scope():  # as in TensorFlow's `schedule`
            strategy.extended._being_scheduled = True
            super().__init__(function, manager, args, kwargs)
            strategy.extended._being_scheduled = False
        self.manager, self.arguments = manager, self._args
        self.concrete, self.output_specs = self._concrete_function, self._output_type_spec
        # Whether a closure with the same arguments does the same.
        self.is_fixed = not self._kwargs and all(
            isinstance(each, FIXED_ARGUMENTS) for each in self._args
        )
        # Weak references: iterators are freed with their last user.
        self._known = [weakref.ref(each) for each in self._args] if self.is_fixed else []

    def copy_with(self, args: Sequence[Any]) -> StepClosure:
        """Return a closure of the same trace with other arguments, and no result yet."""
        other = copy.copy(self)
        other._args = other.arguments = tuple(args)
        other._output_remote_value_ref = None
        other._context = _get_trace_context()
        return other

    def copy_if_equal(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, manager: Any
    ) -> StepClosure | None:
        """Return a copy if a closure that is built now would be equal to it, else None.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            manager: cancels the closures that are queued now.
        """
        context, known = _get_trace_context(), self._known
        is_same = self.is_fixed and not kwargs and manager is self.manager
        if not is_same or context is None or context != self._context or len(args) != len(known):
            return None
        is_equal = all(known() is each for known, each in zip(known, args, strict=True))
        return self.copy_with(args) if is_equal else None

    @property
    def is_awaited(self) -> bool:
        """Whether the program still holds its result."""
        reference = self._output_remote_value_ref
        return reference is not None and reference() is not None

    def takes(self, other: Any) -> bool:
        """Return whether another closure may be a step of the run that begins with this one."""
        if getattr(other, "kind", None) is not self.kind or other.manager is not self.manager:
            return False
        is_same = all(a is b for a, b in zip(self._args, other._args, strict=True))
        return is_same and not (self.runs_alone or other.runs_alone)

    def deliver(self, values: Sequence[Any]) -> None:
        """Make its results known, if the program still holds them.

        Args:
            values: its tensors on the chief, without None.
        """
        each, specs = iter(values), self.output_specs
        structure = tf.nest.map_structure(lambda spec: spec if spec is None else next(each), specs)
        self.maybe_call_with_output_remote_value(lambda result: result._set_values(structure))

    def deliver_error(self, error: Exception) -> None:
        """Make the error known with which it has ended."""
        self.maybe_call_with_output_remote_value(lambda result: result._set_error(error))


def _get_trace_context() -> tuple[Any, ...] | None:
    """Return what decides, besides arguments, which trace of a function this thread takes.

    None while another function is traced, where no two contexts are known to be equal.
    """
    if not tf.executing_eagerly():
        return None
    strategy, is_outer = tf.distribute.get_strategy(), tf.distribute.in_cross_replica_context()
    saves = private.save_context.in_save_context()
    return private.current_context().device_name, id(strategy), is_outer, saves
