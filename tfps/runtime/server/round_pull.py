"""Traces the pull of a round's parameters, repeated until all servers are at that round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tfps.consistency.ledger import MAX_CALLS, NOTHING
from tfps.consistency.round_gate import Contribution, RoundGate
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader
from tfps.runtime.message.wire import ServerShards
from tfps.runtime.server.delta_encoder import DeltaEncoder
from tfps.runtime.server.requests import enter_if_new, pack_values, read_values
from tfps.transport.message import Request


@dataclass(frozen=True)
class RoundPull:
    """Traces the reply to a pull that may have to wait for a round.

    A worker asks all servers for the same round, again until all of them are at its beginning.
    """

    server: Server
    rounds: RoundGate  # decides when the reply is sent
    plan: PlanHeader  # compares the plan of the request
    trace_unchanged_number: Callable[[], tf.Tensor | int]  # see `ServerHalf`
    delta_encoder: DeltaEncoder  # the values that workers hold
    held: ServerShards
    enters: bool  # the worker takes part from that round on; False: it does already
    joins: bool  # whether the request lets a new incarnation of the worker in
    is_grouped: bool = False  # whether workers add up gradients among themselves

    def trace(
        self, header: Sequence[tf.Tensor], ids: tf.Tensor, payload: tf.Tensor
    ) -> list[tf.Tensor]:
        """Trace the function that replies to a pull which may have to wait."""
        server_ledger, worker = self.server.ledger, header[Request.WORKER]
        ask = self.rounds.take_part_from if self.enters else self.rounds.await_round
        with server_ledger.locked():
            if self.joins:  # it is the pull of a scheduled function
                enter_if_new(self.server, self.plan, header)
            ledger = server_ledger.open()
            incarnation = self.plan.read_incarnation(header)
            alive = ledger.is_alive(worker, incarnation)
            if self.joins:
                ledger.count(server_ledger.layout.EXCHANGES)
            ledger.count_traffic(received_bytes=0, sent_bytes=self.held.layout.size_bytes)
            server_ledger.write_changes(ledger)
            has_to_wait = ask(worker, alive, header[Request.BASE_VERSION])
            pulled = self._read(header, alive)
        nothing = tf.constant(NOTHING, tf.int64)
        waiting = Contribution(worker, incarnation, alive, nothing, nothing)

        def wait() -> list[tf.Tensor]:
            end = self.rounds.wait(waiting, lambda _: tf.constant(0), for_all=self.enters)
            with tf.control_dependencies([end]), server_ledger.locked():
                return self._read(header, alive)

        position, other_writes, *values = tf.cond(has_to_wait, wait, lambda: pulled)
        if self.is_grouped:
            ids, alive = values.pop(), tf.logical_and(alive, values.pop())
            if not self.enters:  # see `Push.trace`
                position = header[Request.BASE_VERSION] * MAX_CALLS
        status = self.plan.compute_status(header, alive=alive)
        reply = ReplyHeader(position, status, other_writes=other_writes)
        return [reply.to_tensor(), ids, pack_values(self.held, values)]

    def _read(self, header: Sequence[tf.Tensor], alive: tf.Tensor) -> list[tf.Tensor]:
        number, position = tf.cast(self.trace_unchanged_number(), tf.int64), self.rounds.position()
        self.delta_encoder.record_full_values(header, position, counts=alive)
        return [position, number, *read_values(self.held), *self._read_group(header)]

    def _read_group(self, header: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return whether the worker is in the group that has begun this round, and the group."""
        if not self.is_grouped:
            return []
        if self.enters:
            ledger = self.server.ledger.open()
            worker, incarnation = header[Request.WORKER], self.plan.read_incarnation(header)
            return [ledger.is_alive(worker, incarnation), self.rounds.describe_group()]
        before = (header[Request.BASE_VERSION] - 1) * MAX_CALLS
        return [tf.logical_not(self.rounds.is_voided(before)), tf.zeros([0], tf.int64)]
