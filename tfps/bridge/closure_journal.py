"""What a coordinator's queue says of closures that have ended, for whoever repeats them one day."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class ClosureJournal:
    """Keeps nothing: for coordinators whose closures are not repeated.

    All are called without the queue's lock but `failed`, which must not ask the queue anything.
    """

    def scheduled(self, closure: Any) -> None:
        """A closure is about to be queued, on the thread of the program."""

    def finished(self, closure: Any) -> None:
        """A closure has ended, well; the queue counts it as under way still."""

    def failed(self) -> None:
        """Closures have ended that may be half done, and do not run again."""


def afresh(closure: Any) -> Any:
    """Return the same function with the same arguments, of which nobody gets the result."""
    again = copy.copy(closure)
    again._output_remote_value_ref = None
    again._tfps_repeats = True
    for own in ("_tfps_number", "_tfps_take"):
        again.__dict__.pop(own, None)
    return again


def count_at_end(closure: Any, take: Callable[[], None]) -> None:
    """Have what a run of a closure has counted taken over when the closure ends well.

    The newest run replaces those before it. What has ended before has counted then.
    """
    if closure is None:
        raise RuntimeError("a function that a coordinator has scheduled was called by itself")
    closure._tfps_take = take


def take_counts(closure: Any) -> None:
    """Take over what a closure that has just ended well has counted."""
    take = closure.__dict__.pop("_tfps_take", None)
    if take is not None and not is_repeat(closure):
        take()


def is_repeat(closure: Any) -> bool:
    """Whether a closure is one that has ended before."""
    return getattr(closure, "_tfps_repeats", False)


def is_with_iterators(closure: Any) -> bool:
    """Whether a closure's arguments differ from worker to worker, as iterators do."""
    kind = tf.distribute.experimental.coordinator.PerWorkerValues
    arguments = tf.nest.flatten((closure._args, closure._kwargs))
    return any(isinstance(argument, kind) for argument in arguments)
