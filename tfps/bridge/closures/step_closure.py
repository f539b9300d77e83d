"""A closure of a `tf.function`; one like the last one is copied instead of built."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

# Values that select a trace by their type, which cannot change.
FIXED_ARGUMENTS = (tf.distribute.experimental.coordinator.PerWorkerValues, tf.Tensor)


class StepClosure(private.Closure):
    """A closure of a `tf.function`, as `ClusterCoordinator.schedule` queues it.

    Args:
        function: the `tf.function`, traced here if it has no trace for the arguments.
        manager: cancels the closure.
        args: positional arguments.
        kwargs: keyword arguments.
    """

    def __init__(self, function: Any, manager: Any, args: Any = None, kwargs: Any = None) -> None:
        super().__init__(function, manager, args, kwargs)
        self.arguments: tuple[Any, ...] = tuple(self._args)
        self.manager, self.has_keywords = manager, bool(self._kwargs)

    def copy_with(self, arguments: Sequence[Any]) -> StepClosure:
        """Return a closure of the same trace with other arguments, and no result yet."""
        other = copy.copy(self)
        other._args = other.arguments = tuple(arguments)
        other._output_remote_value_ref = None
        return other


class ClosureTemplate:
    """The last closure of a function, from which the next one is copied if it would be equal.

    That saves the look-up of the trace, which takes longer than the rest of `schedule`.

    Args:
        closure: a closure that was just built, without positional arguments that may change.
        context: the context in which it was built; see `tensorflow_private.get_trace_context`.
    """

    def __init__(self, closure: StepClosure, context: tuple[Any, ...]) -> None:
        # Iterators are freed with their last user.
        self._known = [weakref.ref(argument) for argument in closure.arguments]
        self._closure, self._context = closure.copy_with(()), context

    @classmethod
    def create(
        cls, closure: StepClosure, context: tuple[Any, ...] | None
    ) -> ClosureTemplate | None:
        """Return the template of a closure; None if the next one has to be built, too."""
        is_fixed = all(isinstance(each, FIXED_ARGUMENTS) for each in closure.arguments)
        return (
            None if not is_fixed or closure.has_keywords or not context else cls(closure, context)
        )

    def copy(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, manager: Any
    ) -> StepClosure | None:
        """Return a closure with these arguments; None if it has to be built.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            manager: cancels the closures that are queued now.
        """
        if kwargs or len(args) != len(self._known) or manager is not self._closure.manager:
            return None
        if any(known() is not each for known, each in zip(self._known, args, strict=True)):
            return None
        if self._context != private.get_trace_context():
            return None
        return self._closure.copy_with(args)
