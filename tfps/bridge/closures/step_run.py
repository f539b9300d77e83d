"""A run: closures of one function that waited behind each other, and that a worker runs as one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.run_plan import RunLimits, count_steps
from tfps.bridge.closures.step_closure import StepClosure
from tfps.bridge.functions.chief_constant import copy_to_chief

NO_ROWS = np.zeros([0, 0], np.uint8)

logger = logging.getLogger(__name__)


class RunFunction(Protocol):
    """A function that does several steps, each as another function does it alone.

    Attributes:
        concrete: the function. It returns how many steps have ended, and the rows of all.
        most_steps: the most steps of a call.
        has_counts: whether the rows also have changes of variables on the chief.
    """

    concrete: Any
    most_steps: int
    has_counts: bool

    def create_rows(self) -> tf.Tensor:
        """Create a variable on the current device for what the steps of a run return.

        uint8 [steps, bytes]; it is freed with the run. A worker has it also when a run has failed.
        """

    def count_done(self, rows: np.ndarray[Any, Any]) -> int:
        """Return how many steps have ended."""

    def decode(self, rows: np.ndarray[Any, Any]) -> Sequence[Sequence[tf.Tensor]]:
        """Return the results of steps, for each step its tensors on the chief."""

    def apply_counts(self, rows: np.ndarray[Any, Any]) -> None:
        """Apply the changes that steps make to variables on the chief."""


class StepRun(private.Closure):
    """Several closures as one; to the queue, and to a worker's thread, it is a single closure.

    Each member keeps its own number, under which servers know its pushes. So if the worker is lost,
    members run again one by one, and what servers had applied before is not applied again. If the
    worker only lost a message, the run goes on with the step that was under way.

    Args:
        members: closures that join each other, at least two.
        function: does their steps.
        longest_s: no further step begins after this time.

    Attributes:
        begin: the position of the first member that this attempt runs.
        done: the number of members that are known to have ended well.
        rows: the variable on the worker with their results; None before it has begun.
    """

    def __init__(
        self, members: Sequence[StepClosure], *, function: RunFunction, longest_s: float
    ) -> None:
        manager = members[0].manager
        super().__init__(function.concrete, manager, members[0].arguments)
        self.members, self.function, self.longest_s = tuple(members), function, longest_s
        self._run_steps = manager.get_cancelable_function(function.concrete)
        self._function = self._run
        self.begin = self.done = 0
        self.rows: Any = None
        self._results = NO_ROWS
        self._error: Exception | None = None

    def _run(self, *args: Any) -> Any:
        if self.rows is None:
            self.rows = self.function.create_rows()
        else:  # the next step begins with what the finished ones have counted
            self._take(self._read_rows())
            self._deliver()
            self.begin = self.done
        return self._run_steps(*args)

    def _take(self, rows: np.ndarray[Any, Any]) -> None:
        self.done = max(self.begin, self.function.count_done(rows))
        self._results = rows[self.begin : self.done]

    def _read_rows(self) -> np.ndarray[Any, Any]:
        with tf.device(self.rows.device):
            read = tf.raw_ops.ReadVariableOp(resource=self.rows, dtype=tf.uint8)
        rows: np.ndarray[Any, Any] = copy_to_chief(read).numpy()
        return rows if rows.ndim == 2 else NO_ROWS  # it was cancelled before it had begun

    def maybe_call_with_output_remote_value(self, method: Any) -> Any:
        return method(self)  # TensorFlow calls three methods of a remote value, which follow

    def _set_values(self, values: tuple[tf.Tensor, tf.Tensor]) -> None:
        self._values = values

    def get(self) -> None:
        done, rows = self._values
        self.done = int(copy_to_chief(done).numpy())
        if self.function.has_counts or any(each.is_awaited for each in self.members):
            self._take(copy_to_chief(rows).numpy())

    def _set_error(self, error: Exception) -> None:
        self._error = error
        try:
            self._take(NO_ROWS if self.rows is None else self._read_rows())
        except tf.errors.OpError as unknown:  # the worker is gone as well
            logger.info("it is not known how far functions that have failed came: %s", unknown)

    def _deliver(self) -> None:
        if len(self._results):
            results = self.function.decode(self._results)
            for member, values in zip(self.members[self.begin :], results, strict=False):
                member.deliver(values)
            self.function.apply_counts(self._results)
            self._results = NO_ROWS

    def settle(self) -> Sequence[StepClosure]:
        """Deliver the results and the error of the members; return those that have not begun."""
        self._deliver()
        rest = self.members[self.done :]
        if self._error is None or not rest:
            return rest
        rest[0].deliver_error(self._error)
        return rest[1:]

    def separate(self) -> Sequence[StepClosure]:
        """Return the members without results, which from now on run one by one."""
        for member in self.members[self.begin :]:
            member.runs_alone = True
        return self.members[self.begin :]

    def mark_cancelled(self) -> None:
        for member in self.members[self.begin :]:
            member.mark_cancelled()


def join_waiting(first: Any, waiting: deque[Any], *, limits: RunLimits, workers: int) -> Any:
    """Return a closure that a worker takes, together with those behind it that join it.

    Args:
        first: the closure, which was taken from the queue.
        waiting: the closures in the queue; those of the run are removed.
        limits: the limits of runs.
        workers: the workers that share the queue.
    """
    run = first.kind.run if isinstance(first, StepClosure) else None
    if run is None:
        return first
    most, step_s = min(run.most_steps, limits.most_steps), first.kind.times.step_s
    steps = count_steps(most, limits, waiting=1 + len(waiting), workers=workers, step_s=step_s)
    members = [first]
    while len(members) < steps and waiting and first.takes(waiting[0]):
        members.append(waiting.popleft())
    return StepRun(members, function=run, longest_s=limits.longest_s) if members[1:] else first
