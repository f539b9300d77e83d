"""Traces steps whose optimizers run on the worker, and computes the differences to push."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.worker_local_variable import WorkerLocalVariable
from tfps.optimizers.local_update import apply_locally
from tfps.runtime.message.payload import decode_values
from tfps.runtime.message.request_header import SLOTS
from tfps.runtime.message.wire import get_count_name, get_gradient_name
from tfps.runtime.program.examples import merge_gradients
from tfps.runtime.worker.exchange import get_payloads
from tfps.runtime.worker.step import Step
from tfps.transport.message import Kind


class LocalUpdates(Step):
    """Lets the optimizer calls of a step change the worker's own copies.

    Slots and counts of optimizers stay on the worker from one closure to the next.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        local = self.program.schedule.local
        assert local is not None
        self.local, container = local, self.servers[0].server.contents.container
        # One object for each variable, by which TensorFlow orders reads and writes.
        self.worker_local = {
            id(variable): WorkerLocalVariable(variable, container=container)
            for variable in local.slots
        }
        self.weights = self.program.calls[0].variables
        # Optimizer variables that steps read, such as the scale of the loss, are the worker's own.
        apart = {id(count) for count in local.counts}
        known = {id(variable) for variable in self.program.variables}
        self._read_slots = [v for v in local.slots if id(v) in known - apart]

    def prepare_optimizers(self) -> None:
        """Give a new worker the initial slots; its optimizers count from 0."""

        def load() -> tf.Tensor:
            for count in self.local.counts:
                self.worker_local[id(count)].load_if_missing(tf.zeros([], count._dtype))
            own = {id(count) for count in self.local.counts}
            layouts = [server.slot_layout for server in self.servers]
            payloads = get_payloads(self.send_requests(Kind.PULL, call_number=SLOTS))
            for variable, value in decode_values(layouts, payloads, self.local.slots):
                if id(variable) not in own:
                    # Slots of another optimizer, which the worker has used before, stay.
                    self.worker_local[id(variable)].load_if_missing(value)
            return tf.constant(0)

        is_known = tf.reduce_all([variable.has_value for variable in self.worker_local.values()])
        tf.cond(is_known, lambda: tf.constant(0), load)
        self._load_read_slots()

    def _load_read_slots(self) -> None:
        for variable in self._read_slots:
            self.copies.load(variable, self.worker_local[id(variable)].read_value())

    def load_initial(self, variable: Any, value: tf.Tensor) -> None:
        if not any(variable is own for own in self._read_slots):
            super().load_initial(variable, value)

    def read_count(self, count: Any) -> tf.Tensor:
        """Read the worker's own value of an optimizer's count of updates."""
        return self.worker_local[id(count)].read_value()

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        """Change the worker's copies on all devices, as a single machine would."""
        gradients = merge_gradients(parts, self.shares, variables=variables)
        counts = [v for v in self.local.counts if any(v is own for own in optimizer.variables)]
        before = [self.read_count(count) for count in counts]
        local_slots = self.worker_local
        own = [(v, local_slots[id(v)]) for v in optimizer.variables if id(v) in local_slots]
        rates = [v for v in optimizer.variables if id(v) not in local_slots]
        copies = [*own, *((v, self.get_copy(v)) for v in (*variables, *rates))]
        apply_locally(
            optimizer, gradients, variables, copies=copies, read_iterations=self.copies.read
        )
        if len(self.copies) > 1:
            for variable in variables:
                self.copies.load(variable, self.copies.read(variable))
        self._load_read_slots()
        # A schedule depends on the updates of all workers, as far as this worker knows them.
        for count, old in zip(counts, before, strict=True):
            self.copies.load(count, self.copies.read(count) + self.read_count(count) - old)

    def read_at_begin(self, variable: Any) -> tf.Tensor:
        """Return the value of a weight or a count at the begin of the period."""
        raise NotImplementedError

    def compute_changes(self) -> dict[str, tf.Tensor]:
        """Compute the changes of a period by name, or under elastic averaging the weights."""
        is_elastic, tensors = self.local.elasticity is not None, {}
        for weight in self.weights:
            value = self.copies.read(weight)
            tensors[get_gradient_name(weight)] = (
                value if is_elastic else value - self.read_at_begin(weight)
            )
        for count in self.local.counts:
            increase = self.read_count(count) - self.read_at_begin(count)
            tensors[get_count_name(count)] = tf.cast(increase, tf.float64)
        return tensors

    def load_newer(self, variable: Any, value: tf.Tensor) -> None:
        elasticity = self.local.elasticity
        if elasticity is not None and any(variable is weight for weight in self.weights):
            # The center c has moved by a * (x - c); the worker moves as far from where it was.
            own_value, pull = self.copies.read(variable), elasticity / (1 - elasticity)
            value = own_value - tf.cast(pull, own_value.dtype) * (own_value - value)
        self.load_initial(variable, value)
