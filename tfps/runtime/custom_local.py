"""A scheduled function on a worker that runs the optimizers, and sends differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.custom_delta import SLOTS, DeltaRoundServer, DeltaServer
from tfps.runtime.custom_member import RoundStep
from tfps.runtime.custom_step import CustomStep
from tfps.runtime.kept_optimizers import KeptOptimizers
from tfps.runtime.program import Program
from tfps.runtime.runtime import Runtime
from tfps.runtime.shares import gradients_together
from tfps.runtime.wire import count_name, gradient_name, of_variables
from tfps.runtime.worker_copies import WorkerCopies
from tfps.transport.carrier import Message
from tfps.transport.message import Kind
from tfps.transport.packing import unpack


class LocalCalls(CustomStep):
    """A run whose optimizer calls change the worker's own copies.

    A period ends after so many calls, of whichever optimizer, and with the function: what the
    function has done is on the servers then, and a worker keeps nothing but slots.
    """

    servers: Sequence[DeltaServer]

    def __init__(
        self, program: Program, *, servers: Sequence[DeltaServer], runtime: Runtime
    ) -> None:
        super().__init__(program, servers=servers, runtime=runtime)
        runtime.kept_slots.note(program.local.slots)
        self._optimizers = KeptOptimizers(
            program.local, copies=self.copies, container=runtime.container
        )
        (end,) = program.stages
        self._deltas, self._weights = end.optimizer, end.variables
        # In resources, because optimizer calls may stand in loops and nested functions.
        counted = [*self._weights, *self._optimizers.counts]
        self._at_begin = WorkerCopies(counted, devices=[None])
        self._calls = private.anonymous_variable(shape=tf.TensorShape([]), dtype=tf.int64)

    def pull(self) -> None:
        super().pull()
        self._optimizers.prepare(self._fetch_slots)
        self._begin_period()

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        gradients = gradients_together(parts, self._shares, variables=variables)
        self._optimizers.apply(optimizer, gradients, variables)
        self._calls.assign_add(tf.constant(1, tf.int64), read_value=False)
        self._end_period(after=self.program.period_steps)

    def write_back(self) -> None:
        self._end_period(after=1)
        super().write_back()

    def _begin_period(self) -> None:
        for variable in self._weights:
            self._at_begin.load(variable, tf.identity(self.copies.read(variable)))
        for count in self._optimizers.counts:
            self._at_begin.load(count, tf.identity(self._optimizers.count(count)))
        self._calls.assign(tf.constant(0, tf.int64), read_value=False)

    def _end_period(self, *, after: int) -> None:
        """Exchange, if it has had so many calls."""
        ends = self._calls.read_value() >= after
        tf.cond(ends, self._exchange, lambda: tf.constant(0))

    def _exchange(self) -> tf.Tensor:
        named = {
            gradient_name(v): self._deltas.sent(self.copies.read(v), self._at_begin.read(v))
            for v in self._weights
        }
        for count in self._optimizers.counts:
            increase = self._optimizers.count(count) - self._at_begin.read(count)
            named[count_name(count)] = tf.cast(increase, tf.float64)
        self._push(0, named)
        return tf.constant(0)

    def _take_answers(self, stage: int, replies: dict[int, Message]) -> None:
        mine = {id(v): tf.identity(self.copies.read(v)) for v in self._weights}
        super()._take_answers(stage, replies)
        if self._deltas.elasticity is not None:
            for variable in self._weights:
                center = self.copies.read(variable)
                new = self._deltas.goes_on_with(mine[id(variable)], center)
                self.copies.load(variable, new)
        self._begin_period()

    def _change(self, variable: Any) -> tf.Tensor:
        """Of a weight, what the function assigned after the last exchange."""
        if any(variable is weight for weight in self._weights):
            return self.copies.read(variable) - self._at_begin.read(variable)
        return super()._change(variable)

    def _fetch_slots(self) -> list[tuple[Any, tf.Tensor]]:
        empty = tf.zeros([0], tf.uint8)
        replies = self.runtime.carrier.exchange(
            {
                p: server.call(Kind.PULL, empty, stage=SLOTS, caller=self._caller)
                for p, server in enumerate(self.servers)
            }
        )
        values: dict[str, tf.Tensor] = {}
        for p, server in enumerate(self.servers):
            values.update(unpack(server.slot_layout, replies[p].payload))
        return of_variables(values, self.program.local.slots)


class LocalRounds(LocalCalls, RoundStep):
    """The same where the end of a period is a round of all workers that have functions to run."""

    servers: Sequence[DeltaRoundServer]
