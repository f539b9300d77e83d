"""Traces a scheduled function on a worker that runs the optimizers and pushes differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.function_member import RoundStep
from tfps.runtime.worker.function_step import FunctionStep
from tfps.runtime.worker.local import LocalUpdates
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.transport.carrier import Message


class LocalCalls(LocalUpdates, FunctionStep):
    """A run whose optimizer calls change the worker's own copies.

    A period ends after a number of calls, of any optimizer, and with the function. So at the end of
    the function the servers have all its changes, and the worker keeps only slots.
    """

    _ends = False  # whether all calls were traced

    def __init__(self, servers: Sequence[FunctionHalf]) -> None:
        super().__init__(servers)
        self.runtime.local_slots.register(self.local.slots)
        self._counts_at_begin = WorkerCopies(self.local.counts, devices=[None])
        self._calls = private.create_anonymous_variable(shape=tf.TensorShape([]), dtype=tf.int64)

    def _find_followed_variables(self) -> Sequence[Any]:
        (end,) = self.program.calls
        return end.variables

    def read_at_begin(self, variable: Any) -> tf.Tensor:
        is_weight = id(variable) in self._followed
        return (self._server_values if is_weight else self._counts_at_begin).read(variable)

    def compute_push_position(self) -> tf.Tensor:
        """Return the position of the period's last call, or at the function's end the next one."""
        last = self.calls_done.read_value() + self._calls.read_value()
        return last if self._ends else last - 1

    def count_push_calls(self) -> tf.Tensor:
        return self._calls.read_value()

    def pull(self) -> None:
        self.prepare_optimizers()
        super().pull()
        self._begin_period()

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        super().apply_parts(optimizer, parts, variables)
        self._calls.assign_add(tf.constant(1, tf.int64), read_value=False)
        self._end_period(after=self.local.period_steps)

    def write_back(self) -> None:
        self._ends = True
        self._end_period(after=1)
        super().write_back()

    def _begin_period(self) -> None:
        for count in self.local.counts:
            self._counts_at_begin.load(count, tf.identity(self.read_count(count)))
        self._calls.assign(tf.constant(0, tf.int64), read_value=False)

    def _end_period(self, *, after: int) -> None:
        """Trace the exchange, if the period has had at least ``after`` calls."""

        def exchange() -> tf.Tensor:
            self.exchange(0, self.compute_changes())
            return tf.constant(0)

        tf.cond(self._calls.read_value() >= after, exchange, lambda: tf.constant(0))

    def _load_replies(self, call_number: int, replies: dict[int, Message]) -> Any:
        took = super()._load_replies(call_number, replies)
        self._begin_period()
        return took


class LocalRounds(LocalCalls, RoundStep):
    """A run like `LocalCalls` in which each period ends with a round of all busy workers."""
