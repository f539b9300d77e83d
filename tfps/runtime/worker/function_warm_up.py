"""A scheduled function on a worker that trains by itself until the warm-up is over."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.bridge.worker_local_variable import WorkerLocalVariable
from tfps.runtime.coordinator.worker_local_slots import WorkerLocalSlots
from tfps.runtime.message.request_header import Caller
from tfps.runtime.worker.function_local import LocalCalls
from tfps.transport.carrier import Message


class WarmUpStep(LocalCalls):
    """Local steps that go on, from function to function, with what the worker has made of weights.

    A function tells the servers at its end what it has changed, and takes over nothing of theirs.
    """

    # Apart from what local steps keep: a worker that hung while this was freed may still have it.
    role = "in_warm_up"
    least_calls = 0  # it may have assigned something

    @property
    def local_slots(self) -> WorkerLocalSlots:
        assert self.runtime.warm_up is not None
        return self.runtime.warm_up.kept

    def _who_pushes(self) -> Caller:
        return self._caller._replace(clock=self._calls.read_value())

    def begin_with(self, variable: Any, value: tf.Tensor) -> None:
        own = self.optimizers.kept(variable)
        if own is None:  # another function may train it
            own = WorkerLocalVariable(variable, container=self.runtime.container, role=self.role)
        super().begin_with(variable, tf.cond(own.is_kept, own.read_value, lambda: value))

    def _take_answers(self, call_number: int, replies: dict[int, Message]) -> None:
        with tf.control_dependencies([reply.header for reply in replies.values()]):
            for variable in self._followed.values():
                own = self.optimizers.kept(variable)
                assert own is not None
                own.load(self.copies.read(variable))
        super()._take_answers(call_number, replies)
