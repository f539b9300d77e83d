"""A scheduled function on a worker that others may wait for."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.coordinator.function_membership import member_of_call
from tfps.runtime.message.request_header import Caller
from tfps.runtime.worker.exchange import column_of
from tfps.runtime.worker.function_step import FunctionStep
from tfps.runtime.worker.round_agreement import Found, RoundAgreement
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply


class MemberStep(FunctionStep):
    """A run that others may wait for: its requests say which incarnation of the worker it is."""

    def _who_calls(self) -> Caller:
        return Caller(*tf.unstack(member_of_call(self.runtime.membership)))


class BoundedStep(MemberStep):
    """A run whose optimizer calls are steps of the worker's clock.

    Each pull brings the clock that the worker has on every server; it goes on from the furthest of
    them, so that all servers decide on the same clocks.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._clock = private.anonymous_variable(shape=tf.TensorShape([]), dtype=tf.int64)
        super().__init__(*arguments, **options)

    def _who_pushes(self) -> Caller:
        return self._caller._replace(clock=self._clock.read_value())

    def _answered_pull(self, replies: dict[int, Message]) -> None:
        clocks = column_of(replies, Reply.CLOCK)
        self._clock.assign(tf.reduce_max(clocks), read_value=False)

    def _take_answers(self, call_number: int, replies: dict[int, Message]) -> None:
        super()._take_answers(call_number, replies)
        self._clock.assign_add(tf.constant(1, tf.int64), read_value=False)


class RoundStep(MemberStep):
    """A run whose optimizer calls are rounds: what it pulls is of one round on all servers."""

    def _pull_parameters(self) -> Found:
        nothing = [tf.zeros([0], tf.uint8)] * len(self.servers)
        begin = [tf.constant(0, tf.int64)] * len(self.servers)
        return self.rounds.enter(Found(nothing, begin, tf.constant(True)))

    def _take_answers(self, call_number: int, replies: dict[int, Message]) -> None:
        super()._take_answers(call_number, replies)
        if not self.servers[0].offers(Kind.AWAIT_ROUND):
            return

        def catch_up() -> tf.Tensor:
            empty = [tf.zeros([0], tf.uint8)] * len(self.servers)
            found = self.rounds.catch_up(Found.of(replies)._replace(payloads=empty))
            self._load(found, self.take_over)
            return tf.constant(0)

        is_reached = RoundAgreement.is_reached(tf.stack(column_of(replies, Reply.VERSION)))
        tf.cond(is_reached, lambda: tf.constant(0), catch_up)
