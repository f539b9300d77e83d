"""A step whose optimizers run on the worker; one exchange ends a period of such steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.kept_variable import KeptVariable
from tfps.optimizers.local_update import apply_locally
from tfps.runtime.period_step import PeriodStep
from tfps.runtime.shares import gradients_together
from tfps.runtime.wire import count_name, gradient_name, of_variables
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.message import Kind
from tfps.transport.packing import unpack


class LocalStep(PeriodStep):
    """Traces steps that change the worker's own copies, and the exchange at a period's end.

    What optimizers keep stays on the worker from one closure to the next.

    Args:
        program: what the step touches; it trains locally.
        options: of `WorkerStep`.
    """

    def __init__(self, program: Any, **options: Any) -> None:
        super().__init__(program, **options)
        container = self.servers[0].server.ledger.container
        self._kept = {
            id(variable): KeptVariable(variable, container=container)
            for variable in program.local.slots
        }
        self._weights = program.stages[0].variables
        self._elasticity = program.stages[0].optimizer.elasticity

    def prepare(self) -> None:
        """Give a worker that is new the slots as they begin; its optimizers count from 0."""
        is_known = tf.reduce_all([variable.is_kept for variable in self._kept.values()])
        tf.cond(is_known, lambda: tf.constant(0), self._fetch_slots)

    def begin_period(self) -> None:
        super().begin_period()
        weights = {id(v): tf.identity(self.copies.read(v)) for v in self._weights}
        counts = {id(v): tf.identity(self._kept[id(v)].read_value()) for v in self._counts}
        self._at_begin |= weights | counts

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        """Each of several devices has computed a part of the gradient; all get the new weights."""
        gradients = gradients_together(parts, self.shares, variables=variables)
        counts = [v for v in self._counts if any(v is o for o in optimizer.variables)]
        before = [self._kept[id(count)].read_value() for count in counts]
        own = [(v, self._kept[id(v)]) for v in optimizer.variables if id(v) in self._kept]
        known = {id(v) for v, _ in own}
        rates = [v for v in optimizer.variables if id(v) not in known]
        touched = [(v, self.copies.on(0, v)) for v in (*variables, *rates)]
        apply_locally(
            optimizer,
            gradients,
            variables,
            copies=[*own, *touched],
            updates=self.copies.read,
        )
        if len(self.copies) > 1:
            for variable in variables:
                self.copies.load(variable, self.copies.read(variable))
        # A schedule goes by the updates of all workers, as far as this one has heard of them.
        for count, old in zip(counts, before, strict=True):
            made = self._kept[id(count)].read_value() - old
            self.copies.load(count, self.copies.read(count) + made)

    def _send(self, gathered: Mapping[str, tf.Tensor]) -> None:
        sent = {gradient_name(v): self._sent(v) for v in self._weights}
        for count in self._counts:
            increase = self._kept[id(count)].read_value() - self._at_begin[id(count)]
            sent[count_name(count)] = tf.cast(increase, tf.float64)
        self._exchange(sent)

    @property
    def _counts(self) -> Sequence[Any]:
        counts: Sequence[Any] = self.program.local.counts
        return counts

    def _sent(self, variable: Any) -> tf.Tensor:
        value = self.copies.read(variable)
        return value if self._elasticity is not None else value - self._at_begin[id(variable)]

    def _load(self, stage: int, payloads: Sequence[tf.Tensor]) -> None:
        if self._elasticity is None:
            super()._load(stage, payloads)
            return
        mine = {id(v): self.copies.read(v) for v in self._weights}
        super()._load(stage, payloads)
        # The center c has come nearer by a * (x - c); the worker does the same from where it was.
        pull = self._elasticity / (1 - self._elasticity)
        for variable in self._weights:
            old, center = mine[id(variable)], self.copies.read(variable)
            self.copies.load(variable, old - tf.cast(pull, old.dtype) * (old - center))

    def _fetch_slots(self) -> tf.Tensor:
        header = self._header(Kind.PULL)
        replies = self.carrier.exchange(
            {
                p: ServerCall(
                    server.server.device,
                    server.pull_slots,
                    Message.of(header(p)),
                    server.slot_layout.size_bytes,
                )
                for p, server in enumerate(self.servers)
            }
        )
        values: dict[str, tf.Tensor] = {}
        for p, server in enumerate(self.servers):
            values.update(unpack(server.slot_layout, replies[p].payload))
        for variable, value in of_variables(values, self.program.local.slots):
            self._kept[id(variable)].load(value)
        for count in self._counts:
            self._kept[id(count)].load(tf.zeros([], count._dtype))
        return tf.constant(0)
