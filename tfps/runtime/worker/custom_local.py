"""A scheduled function on a worker that runs the optimizers, and sends differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.kept_variable import ON_WORKER
from tfps.runtime.coordinator.kept_slots import KeptSlots
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.wire import count_name, gradient_name, received
from tfps.runtime.program.program import Program
from tfps.runtime.program.shares import gradients_together
from tfps.runtime.server.custom_delta import SLOTS, DeltaRoundServer, DeltaServer
from tfps.runtime.worker.custom_member import RoundStep
from tfps.runtime.worker.custom_step import CustomStep
from tfps.runtime.worker.kept_optimizers import KeptOptimizers
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.transport.carrier import Message
from tfps.transport.message import Kind


class LocalCalls(CustomStep):
    """A run whose optimizer calls change the worker's own copies.

    A period ends after so many calls, of whichever optimizer, and with the function: what the
    function has done is on the servers then, and a worker keeps nothing but slots.
    """

    servers: Sequence[DeltaServer]
    role = ON_WORKER  # see `bridge.kept_variable.kept_name`
    least_calls = 1  # that end a period with the function

    def __init__(
        self, program: Program, *, servers: Sequence[DeltaServer], runtime: Runtime
    ) -> None:
        super().__init__(program, servers=servers, runtime=runtime)
        self._kept.note(program.local.slots, role=self.role)
        self._optimizers = KeptOptimizers(
            program.local, copies=self.copies, container=runtime.container, role=self.role
        )
        self._deltas = program.stages[0].optimizer
        # In resources, because optimizer calls may stand in loops and nested functions.
        self._counts_at_begin = WorkerCopies(self._optimizers.counts, devices=[None])
        self._calls = private.anonymous_variable(shape=tf.TensorShape([]), dtype=tf.int64)

    @property
    def _kept(self) -> KeptSlots:
        return self.runtime.kept_slots

    def _weights_to_follow(self) -> Sequence[Any]:
        (end,) = self.program.stages
        return end.variables

    def pull(self) -> None:
        self._optimizers.prepare(self._fetch_slots)
        super().pull()
        self._begin_period()

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        gradients = gradients_together(parts, self._shares, variables=variables)
        self._optimizers.apply(optimizer, gradients, variables)
        self._calls.assign_add(tf.constant(1, tf.int64), read_value=False)
        self._end_period(after=self.program.period_steps)

    def write_back(self) -> None:
        self._end_period(after=self.least_calls)
        super().write_back()

    def _begin_period(self) -> None:
        for count in self._optimizers.counts:
            self._counts_at_begin.load(count, tf.identity(self._optimizers.count(count)))
        self._calls.assign(tf.constant(0, tf.int64), read_value=False)

    def _end_period(self, *, after: int) -> None:
        """Exchange, if it has had so many calls."""
        ends = self._calls.read_value() >= after
        tf.cond(ends, self._exchange, lambda: tf.constant(0))

    def _exchange(self) -> tf.Tensor:
        named = {
            gradient_name(v): self._deltas.sent(self.copies.read(v), self._at_home.read(v))
            for v in self._followed.values()
        }
        for count in self._optimizers.counts:
            increase = self._optimizers.count(count) - self._counts_at_begin.read(count)
            named[count_name(count)] = tf.cast(increase, tf.float64)
        self._push(0, named)
        return tf.constant(0)

    def _take_answers(self, stage: int, replies: dict[int, Message]) -> None:
        super()._take_answers(stage, replies)
        self._begin_period()

    def _take_over(self, variable: Any, value: tf.Tensor) -> None:
        if id(variable) in self._followed:
            value = self._deltas.goes_on_with(self.copies.read(variable), value)
        self._begin_with(variable, value)

    def _fetch_slots(self) -> list[tuple[Any, tf.Tensor]]:
        empty = tf.zeros([0], tf.uint8)
        replies = self.runtime.carrier.exchange(
            {
                p: server.call(Kind.PULL, empty, stage=SLOTS, caller=self._caller)
                for p, server in enumerate(self.servers)
            }
        )
        layouts = [server.slot_layout for server in self.servers]
        payloads = [replies[p].payload for p in range(len(self.servers))]
        return received(self.program.local.slots, layouts, payloads)


class LocalRounds(LocalCalls, RoundStep):
    """The same where the end of a period is a round of all workers that have functions to run."""

    servers: Sequence[DeltaRoundServer]
