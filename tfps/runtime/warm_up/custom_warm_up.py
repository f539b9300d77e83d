"""A scheduled function on a worker that trains by itself until the warm-up is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.local_steps import LocalSteps
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.payload import decode
from tfps.runtime.message.request_header import SLOTS, Caller
from tfps.runtime.message.wire import gradient_name
from tfps.runtime.program.local_training import train_locally
from tfps.runtime.program.program import Program, refuse_strangers
from tfps.runtime.program.shares import gradients_together
from tfps.runtime.warm_up.custom_mean import CALLS, WEIGHTS, MeanServer
from tfps.runtime.warm_up.kept_weights import WARM, KeptWeights, kept_weight
from tfps.runtime.worker.exchange import payloads_of
from tfps.runtime.worker.function_step import FunctionStep
from tfps.runtime.worker.kept_optimizers import KeptOptimizers
from tfps.runtime.worker.worker_index import worker_of_call
from tfps.transport.carrier import Message
from tfps.transport.message import Kind


def train_alone(program: Program) -> None:
    """Make a program that was just discovered one whose weights stay on the worker.

    So do moving averages and what else of real numbers it assigns; the mean is of them all.
    """
    train_locally(program, LocalSteps(1), adds_counts=False)
    (end,), local = program.stages, program.local
    of_optimizers = {id(variable) for variable in (*local.slots, *local.rates)}
    assigned = [
        variable
        for variable in program.state
        if tf.as_dtype(variable._dtype).is_floating and id(variable) not in of_optimizers
    ]
    kept = {id(variable): variable for variable in (*end.variables, *assigned)}
    program.kept = list(kept.values())
    program.variables = [v for v in program.variables if id(v) not in kept]
    program.stages = [dataclasses.replace(end, variables=tuple(program.kept))]
    refuse_strangers([*program.variables, *program.kept])


class WarmUpStep(FunctionStep):
    """A run whose optimizer calls change the worker's own copies, which stay there.

    At its end the servers get to know what it has changed. A worker that has no weights yet begins
    with those that all began with, or, if it comes back, with the mean.
    """

    servers: Sequence[MeanServer]

    def __init__(
        self, program: Program, *, servers: Sequence[MeanServer], runtime: Runtime
    ) -> None:
        super().__init__(program, servers=servers, runtime=runtime)
        assert runtime.warm_up is not None
        container = runtime.container
        self._optimizers = KeptOptimizers(
            program.local, copies=self.copies, container=container, role=WARM
        )
        self._weights = KeptWeights(program.kept, container=container)
        self._comes_back = runtime.warm_up.comes_back_at_call()
        # In a resource, because optimizer calls may stand in loops and nested functions.
        self._calls = private.anonymous_variable(shape=tf.TensorShape([]), dtype=tf.float64)

    def _who_calls(self) -> Caller:
        return Caller.at_call(worker_of_call())

    def pull(self) -> None:
        self._weights.prepare(self._fetch_weights)
        for variable in self.program.kept:
            self.copies.load(variable, self._weights.value(variable))
        super().pull()
        self._optimizers.prepare(self._fetch_slots)
        for count in self._optimizers.counts:
            self.copies.load(count, self._optimizers.count(count))
        self._calls.assign(tf.constant(0.0, tf.float64), read_value=False)

    def begin_with(self, variable: Any, value: tf.Tensor) -> None:
        """What another function trains is read as it has left it on this worker."""
        if value.dtype.is_floating:
            own = kept_weight(variable, container=self.runtime.container)
            value = tf.cond(own.is_kept, own.read_value, lambda: value)
        super().begin_with(variable, value)

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        gradients = gradients_together(parts, self.shares, variables=variables)
        self._optimizers.apply(optimizer, gradients, variables)
        self._calls.assign_add(tf.constant(1.0, tf.float64), read_value=False)

    def write_back(self) -> None:
        calls = self._calls.read_value()
        named = {
            gradient_name(v): self._weights.change(v, self.copies.read(v), calls=calls)
            for v in self.program.kept
        }
        self.exchange(0, {**named, CALLS: calls})
        super().write_back()

    def _take_answers(self, stage: int, replies: dict[int, Message]) -> None:
        super()._take_answers(stage, replies)
        calls = self._calls.read_value()
        with tf.control_dependencies([reply.header for reply in replies.values()]):
            for variable in self.program.kept:
                self._weights.keep(variable, self.copies.read(variable), calls=calls)

    def _fetch(self, stage: int) -> list[tf.Tensor]:
        return payloads_of(self.ask(Kind.PULL, stage=stage))

    def _fetch_slots(self) -> list[tuple[Any, tf.Tensor]]:
        layouts = [server.slot_layout for server in self.servers]
        return decode(layouts, self._fetch(SLOTS), self.program.local.slots)

    def _fetch_weights(self) -> list[tuple[Any, tf.Tensor, tf.Tensor]]:
        layouts = [server.kept_layout for server in self.servers]
        answers = [
            tf.split(tf.ensure_shape(payload, [2 * layout.size_bytes]), 2)
            for layout, payload in zip(layouts, self._fetch(WEIGHTS), strict=True)
        ]
        begins, means = (
            decode(layouts, half, self.program.kept) for half in zip(*answers, strict=True)
        )
        return [
            (variable, begin, tf.where(self._comes_back, mean, begin))
            for (variable, begin), (_, mean) in zip(begins, means, strict=True)
        ]
