"""A step whose optimizers run on the worker; one exchange ends a period of such steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.runtime.message.wire import count_name, gradient_name, received
from tfps.runtime.program.shares import gradients_together
from tfps.runtime.worker.kept_optimizers import KeptOptimizers
from tfps.runtime.worker.period_step import PeriodStep
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.message import Kind


class LocalStep(PeriodStep):
    """Traces steps that change the worker's own copies, and the exchange at a period's end.

    What optimizers keep stays on the worker from one closure to the next.

    Args:
        program: what the step touches; it trains locally.
        options: of `FitStep`.
    """

    def __init__(self, program: Any, **options: Any) -> None:
        super().__init__(program, **options)
        self._optimizers = KeptOptimizers(
            program.local,
            copies=self.copies,
            container=self.servers[0].server.ledger.container,
        )
        (end,) = program.stages
        self._deltas, self._weights = end.optimizer, end.variables

    def prepare(self) -> None:
        self._optimizers.prepare(self._fetch_slots)

    def begin_period(self) -> None:
        super().begin_period()
        weights = {id(v): tf.identity(self.copies.read(v)) for v in self._weights}
        counts = {id(v): tf.identity(self._optimizers.count(v)) for v in self._optimizers.counts}
        self._at_begin |= weights | counts

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        """Each of several devices has computed a part of the gradient; all get the new weights."""
        gradients = gradients_together(parts, self.shares, variables=variables)
        self._optimizers.apply(optimizer, gradients, variables)

    def _send(self, gathered: Mapping[str, tf.Tensor]) -> None:
        sent = {
            gradient_name(v): self._deltas.sent(self.copies.read(v), self._at_begin[id(v)])
            for v in self._weights
        }
        for count in self._optimizers.counts:
            increase = self._optimizers.count(count) - self._at_begin[id(count)]
            sent[count_name(count)] = tf.cast(increase, tf.float64)
        self._exchange(sent)

    def _load(self, stage: int, payloads: Sequence[tf.Tensor]) -> None:
        mine = {id(v): self.copies.read(v) for v in self._weights}
        super()._load(stage, payloads)
        if self._deltas.elasticity is not None:
            for variable in self._weights:
                center = self.copies.read(variable)
                new = self._deltas.goes_on_with(mine[id(variable)], center)
                self.copies.load(variable, new)

    def _fetch_slots(self) -> list[tuple[Any, tf.Tensor]]:
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
        layouts = [server.slot_layout for server in self.servers]
        payloads = [replies[p].payload for p in range(len(self.servers))]
        return received(self.program.local.slots, layouts, payloads)
