"""Steps whose optimizers run on the worker; servers get to know differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.worker_local_variable import ON_WORKER
from tfps.runtime.message.payload import decode
from tfps.runtime.message.request_header import SLOTS
from tfps.runtime.message.wire import count_name, gradient_name
from tfps.runtime.program.examples import gradients_together
from tfps.runtime.program.program import Program
from tfps.runtime.worker.exchange import payloads_of
from tfps.runtime.worker.step import Step
from tfps.runtime.worker.worker_local_optimizers import WorkerLocalOptimizers
from tfps.transport.message import Kind


class LocalUpdates(Step):
    """Lets the optimizer calls of a step change the worker's own copies.

    What optimizers keep stays on the worker from one closure to the next.

    Args:
        program: what the step touches; it trains locally.
        options: of the step.
    """

    role = ON_WORKER  # see `bridge.worker_local_variable.worker_local_name`

    def __init__(self, program: Program, **options: Any) -> None:
        super().__init__(program, **options)
        local = program.schedule.local
        assert local is not None
        self.local = local
        self.optimizers = WorkerLocalOptimizers(
            local,
            copies=self.copies,
            container=self.servers[0].server.ledger.container,
            role=self.role,
        )
        self.weights = program.calls[0].variables

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        gradients = gradients_together(parts, self.shares, variables=variables)
        self.optimizers.apply(optimizer, gradients, variables)

    def prepare_optimizers(self) -> None:
        """Give a worker that is new what its optimizers begin with."""
        self.optimizers.prepare(self._fetch_slots)

    def at_begin(self, variable: Any) -> tf.Tensor:
        """What a weight or a count was when the period began."""
        raise NotImplementedError

    def changes(self) -> dict[str, tf.Tensor]:
        """What the period has come to, by name."""
        is_elastic, tensors = self.local.elasticity is not None, {}
        for weight in self.weights:
            value = self.copies.read(weight)
            tensors[gradient_name(weight)] = value if is_elastic else value - self.at_begin(weight)
        for count in self.optimizers.counts:
            increase = self.optimizers.count(count) - self.at_begin(count)
            tensors[count_name(count)] = tf.cast(increase, tf.float64)
        return tensors

    def take_over(self, variable: Any, value: tf.Tensor) -> None:
        elasticity = self.local.elasticity
        if elasticity is not None and any(variable is weight for weight in self.weights):
            # The center c has come nearer by a * (x - c); the worker does so from where it was.
            mine, pull = self.copies.read(variable), elasticity / (1 - elasticity)
            value = mine - tf.cast(pull, mine.dtype) * (mine - value)
        self.begin_with(variable, value)

    def _fetch_slots(self) -> list[tuple[Any, tf.Tensor]]:
        layouts = [server.slot_layout for server in self.servers]
        payloads = payloads_of(self.ask(Kind.PULL, call_number=SLOTS))
        return decode(layouts, payloads, self.local.slots)
