"""A scheduled function on a worker that runs the optimizers, and sends differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.worker_local_slots import WorkerLocalSlots
from tfps.runtime.program.program import Program
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.function_member import RoundStep
from tfps.runtime.worker.function_step import FunctionStep
from tfps.runtime.worker.local import LocalUpdates
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.transport.carrier import Message


class LocalCalls(LocalUpdates, FunctionStep):
    """A run whose optimizer calls change the worker's own copies.

    A period ends after so many calls, of whichever optimizer, and with the function: what the
    function has done is on the servers then, and a worker keeps nothing but slots.
    """

    least_calls = 1  # that end a period with the function

    def __init__(
        self, program: Program, *, servers: Sequence[FunctionHalf], runtime: Runtime
    ) -> None:
        super().__init__(program, servers=servers, runtime=runtime)
        self.local_slots.note(self.local.slots, role=self.role)
        self._counts_at_begin = WorkerCopies(self.optimizers.counts, devices=[None])
        self._calls = private.anonymous_variable(shape=tf.TensorShape([]), dtype=tf.int64)

    @property
    def local_slots(self) -> WorkerLocalSlots:
        """Where it is noted what the worker keeps."""
        return self.runtime.local_slots

    def _weights_to_follow(self) -> Sequence[Any]:
        (end,) = self.program.calls
        return end.variables

    def at_begin(self, variable: Any) -> tf.Tensor:
        is_weight = id(variable) in self._followed
        return (self._at_home if is_weight else self._counts_at_begin).read(variable)

    def pull(self) -> None:
        self.prepare_optimizers()
        super().pull()
        self._begin_period()

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        super().apply_parts(optimizer, parts, variables)
        self._calls.assign_add(tf.constant(1, tf.int64), read_value=False)
        self._end_period(after=self.program.schedule.period_steps)

    def write_back(self) -> None:
        self._end_period(after=self.least_calls)
        super().write_back()

    def _begin_period(self) -> None:
        for count in self.optimizers.counts:
            self._counts_at_begin.load(count, tf.identity(self.optimizers.count(count)))
        self._calls.assign(tf.constant(0, tf.int64), read_value=False)

    def _end_period(self, *, after: int) -> None:
        """Exchange, if it has had so many calls."""

        def exchange() -> tf.Tensor:
            self.exchange(0, self.changes())
            return tf.constant(0)

        tf.cond(self._calls.read_value() >= after, exchange, lambda: tf.constant(0))

    def _take_answers(self, call_number: int, replies: dict[int, Message]) -> None:
        super()._take_answers(call_number, replies)
        self._begin_period()


class LocalRounds(LocalCalls, RoundStep):
    """The same where the end of a period is a round of all workers that have functions to run."""
