"""Traces a scheduled function on a worker for which other workers may wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_error import NO_REPLY, NOT_A_MEMBER
from tfps.consistency.ledger import Status, takes_part
from tfps.runtime.message.request_header import Fields
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import ServerReplies, get_field_by_server
from tfps.runtime.worker.function_step import FunctionStep
from tfps.runtime.worker.round_agreement import RoundAgreement
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.message import Kind, Reply, Request


class MemberCarrier:
    """Ends a run with an error if a server refuses the worker, or does not reply.

    The pushes of such a run may count on no server, or on some. It is run again, under the same
    keys, as another incarnation of its worker.

    Args:
        carrier: sends the requests.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier, self.name = carrier, carrier.name

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        replies = self._carrier.exchange(calls)
        worst_status = tf.reduce_max(tf.stack(get_field_by_server(replies, Reply.STATUS)))
        reason = tf.where(worst_status == Status.LOST, NO_REPLY, NOT_A_MEMBER)
        goes_on = tf.raw_ops.Assert(condition=takes_part(worst_status), data=[reason, worst_status])
        with tf.control_dependencies([goes_on]):
            return {server: Message(*map(tf.identity, reply)) for server, reply in replies.items()}


class MemberStep(FunctionStep):
    """A run for which other workers may wait; its requests name the incarnation of the worker."""

    def __init__(self, servers: Sequence[FunctionHalf]) -> None:
        super().__init__(servers)
        self.carrier = MemberCarrier(self.carrier)

    def _get_caller_fields(self) -> Fields:
        assert self.run is not None
        return {Request.WORKER: self.run.worker, Request.INCARNATION: self.run.worker_incarnation}


class BoundedStep(MemberStep):
    """A run whose optimizer calls are steps of the worker's clock.

    Each pull brings the worker's clock on every server. The worker continues from the largest one,
    so that all servers decide on the same clocks.
    """

    def __init__(self, servers: Sequence[FunctionHalf]) -> None:
        self._clock = private.create_anonymous_variable(shape=tf.TensorShape([]), dtype=tf.int64)
        super().__init__(servers)

    def push_fields(self) -> Fields:
        return {**super().push_fields(), Request.CLOCK: self._clock.read_value()}

    def _pull_parameters(self) -> ServerReplies:
        replies = self.send_requests(Kind.PULL)
        clock = tf.reduce_max(get_field_by_server(replies, Reply.CLOCK))
        self._clock.assign(clock, read_value=False)
        return ServerReplies.from_replies(replies)

    def _load_replies(self, call_number: int, replies: dict[int, Message]) -> Any:
        """Load the values in the replies to a push, which ends a step of the worker's clock."""
        took = super()._load_replies(call_number, replies)
        self._clock.assign_add(tf.constant(1, tf.int64), read_value=False)
        return took


class RoundStep(MemberStep):
    """A run whose optimizer calls are rounds: it pulls parameters of one round from all servers."""

    def _pull_parameters(self) -> ServerReplies:
        begin = [tf.constant(0, tf.int64)] * len(self.servers)
        return self.rounds.enter(ServerReplies([], begin, tf.constant(True), []))

    def _load_replies(self, call_number: int, replies: dict[int, Message]) -> Any:
        took = super()._load_replies(call_number, replies)
        if not self.servers[0].has_function(Kind.AWAIT_ROUND):
            return took

        def catch_up() -> tf.Tensor:
            self._load(self.rounds.catch_up(ServerReplies.from_replies(replies)), self.load_newer)
            return tf.constant(0)

        is_reached = RoundAgreement.are_at_same_round(
            tf.stack(get_field_by_server(replies, Reply.VERSION))
        )
        tf.cond(is_reached, lambda: tf.constant(0), catch_up)
        return took
