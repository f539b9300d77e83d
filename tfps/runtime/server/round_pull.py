"""How a worker gets the parameters of a round that it agrees on with all servers."""

from __future__ import annotations

import tensorflow as tf

from tfps.consistency.ledger import NOTHING
from tfps.consistency.round_gate import Contribution, RoundGate
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader
from tfps.runtime.message.wire import Parts
from tfps.runtime.server.entry import enter_if_new
from tfps.transport.message import Request
from tfps.transport.packing import pack


class RoundPull:
    """Traces the answer to a pull that may have to wait for a round.

    A worker asks all servers for the same round, and again until all of them are at its begin.

    Args:
        server: whose function it is.
        rounds: of the server.
        plan: of the request.
        held: the parameters.
        enters: the worker takes part from that round on; else it does so already.
        joins: a new incarnation of the worker is let in by the same request.
    """

    def __init__(
        self,
        server: Server,
        *,
        rounds: RoundGate,
        plan: PlanHeader,
        held: Parts,
        enters: bool,
        joins: bool,
    ) -> None:
        self.server, self.rounds, self.plan, self.held = server, rounds, plan, held
        self.enters, self.joins = enters, joins

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers such a request."""
        ledger, worker = self.server.ledger, header[Request.WORKER]
        ask = self.rounds.begin if self.enters else self.rounds.await_round
        with ledger.locked():
            if self.joins:  # it is the pull of a scheduled function
                enter_if_new(self.server, self.plan, header)
            entries = ledger.entries()
            incarnation = self.plan.incarnation(header)
            alive = entries.is_alive(worker, incarnation)
            if self.joins:
                entries.count(ledger.layout.EXCHANGES)
                entries.count_traffic(received_bytes=0, sent_bytes=self.held.layout.size_bytes)
                ledger.post(entries)
            has_to_wait = ask(worker, alive, header[Request.BASE_VERSION])
            found = self._read()
        waiting = Contribution(
            worker=worker,
            incarnation=incarnation,
            alive=alive,
            position=tf.constant(NOTHING, tf.int64),
            next_position=tf.constant(NOTHING, tf.int64),
        )
        position, *values = tf.cond(has_to_wait, lambda: self._wait(waiting), lambda: found)
        reply = ReplyHeader(position, self.plan.status(header, alive=alive))
        names = [native.shared_name for native in self.held.natives]
        named = dict(zip(names, values, strict=True))
        return [reply.tensor(), ids, pack(self.held.server_layout, named)]

    def _wait(self, waiting: Contribution) -> list[tf.Tensor]:
        end = self.rounds.wait(waiting, lambda _: tf.constant(0), for_all=self.enters)
        with tf.control_dependencies([end]), self.server.ledger.locked():
            return self._read()

    def _read(self) -> list[tf.Tensor]:
        return [self.rounds.position(), *(native.read_value() for native in self.held.natives)]
