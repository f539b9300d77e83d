"""A scheduled function on a worker that others may wait for."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.message.request_header import Fields
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import Answer, column_of
from tfps.runtime.worker.function_step import FunctionStep
from tfps.runtime.worker.round_agreement import RoundAgreement
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply, Request


class MemberStep(FunctionStep):
    """A run that others may wait for: its requests say which incarnation of the worker it is."""

    def _who_calls(self) -> Fields:
        assert self.run is not None
        return {Request.WORKER: self.run.worker, Request.INCARNATION: self.run.incarnation}


class BoundedStep(MemberStep):
    """A run whose optimizer calls are steps of the worker's clock.

    Each pull brings the clock that the worker has on every server; it goes on from the furthest of
    them, so that all servers decide on the same clocks.
    """

    def __init__(self, servers: Sequence[FunctionHalf]) -> None:
        self._clock = private.anonymous_variable(shape=tf.TensorShape([]), dtype=tf.int64)
        super().__init__(servers)

    def told_by_push(self) -> Fields:
        return {**super().told_by_push(), Request.CLOCK: self._clock.read_value()}

    def _pull_parameters(self) -> Answer:
        replies = self.ask(Kind.PULL)
        clock = tf.reduce_max(column_of(replies, Reply.CLOCK))
        self._clock.assign(clock, read_value=False)
        return Answer.of(replies)

    def _take_answers(self, call_number: int, replies: dict[int, Message]) -> None:
        super()._take_answers(call_number, replies)
        self._clock.assign_add(tf.constant(1, tf.int64), read_value=False)


class RoundStep(MemberStep):
    """A run whose optimizer calls are rounds: what it pulls is of one round on all servers."""

    def _pull_parameters(self) -> Answer:
        begin = [tf.constant(0, tf.int64)] * len(self.servers)
        return self.rounds.enter(Answer([], begin, tf.constant(True)))

    def _take_answers(self, call_number: int, replies: dict[int, Message]) -> None:
        super()._take_answers(call_number, replies)
        if not self.servers[0].offers(Kind.AWAIT_ROUND):
            return

        def catch_up() -> tf.Tensor:
            self._load(self.rounds.catch_up(Answer.of(replies)), self.take_over)
            return tf.constant(0)

        is_reached = RoundAgreement.is_reached(tf.stack(column_of(replies, Reply.VERSION)))
        tf.cond(is_reached, lambda: tf.constant(0), catch_up)
