"""What a push does on a server that applies one mean for each round of all workers."""

from __future__ import annotations

import functools
from dataclasses import replace

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.ledger import MAX_STAGES, NOTHING, Entries, Status
from tfps.consistency.round_gate import Contribution, RoundGate
from tfps.consistency.server_quotas import Quotas
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.answers import Answers, Handed
from tfps.runtime.message.wire import Parts
from tfps.runtime.server import bookkeeping
from tfps.runtime.server.bookkeeping import Sender, Turn
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.joining import join_if_new
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.server_stage import ServerStage, count_durations
from tfps.runtime.server.server_tables import received_bytes, reply_ids, unpacked
from tfps.transport.message import Request
from tfps.transport.packing import pack


class RoundPush:
    """Traces one stage's push: admit, add, complete the round or wait for it, reply.

    The version that a worker hears of is the server's position when its parameters were read.

    Args:
        stage: what a round changes.
        rounds: of the server.
        contributions: of the stage.
        answers: how replies are headed.
        reports: where the step before is counted; None: not with this push.
        quotas: how many tickets a worker gets next; None: one, or none with this push.
    """

    def __init__(
        self,
        stage: ServerStage,
        *,
        rounds: RoundGate,
        contributions: Contributions,
        answers: Answers,
        reports: Reports | None,
        quotas: Quotas | None = None,
    ) -> None:
        self.stage, self.rounds, self.contributions = stage, rounds, contributions
        self.answers, self.reports, self.quotas = answers, reports, quotas
        self.turn = Turn(
            stage=stage.number,
            is_update=stage.is_update,
            hands_out=reports is not None,
            received_bytes=stage.wire.request.size_bytes,
            sent_bytes=stage.wire.reply.size_bytes,
        )

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers a push."""
        stage, ledger, rounds = self.stage, self.stage.server.ledger, self.rounds
        tensors = unpacked(stage.wire, ids, payload)
        turn = replace(self.turn, received_bytes=received_bytes(stage.wire, ids, payload))
        fields = tf.unstack(header)
        cell = ledger.window_cell(fields[Request.TICKET])
        with ledger.locked():
            entries = ledger.entries()
            slot = entries.account(fields[Request.SLOT])
            is_ours = self.answers.is_ours(header)
            alive = entries.is_alive(slot, tf.where(is_ours, fields[Request.INCARNATION], -1))
            made = self._contribution(fields, alive)
            in_time, state = found = rounds.accepts(made)
            pushed = bookkeeping.contribute(
                entries,
                header=fields,
                slot=slot,
                sender=Sender(alive, in_time, state.position),
                turn=turn,
                applied_key=ledger.applied_key(cell),
                quota=self._quota(entries, fields, alive),
            )
            if stage.is_last:
                count_durations(stage.server, entries, header)
            done = self.contributions.add(
                tensors,
                examples=fields[Request.STEP_EXAMPLES],
                position=state.position,
                condition=pushed.fresh,
            )
            # The books say that it was counted when it was, and not if that failed.
            remembered = ledger.remember(cell=cell, key=pushed.remembered)
            for operation in (remembered, *ledger.post(entries)):
                private.run_after(operation, done.op)
            if self.reports is not None:
                self.reports.count(pushed.closed, tensors)
            with tf.control_dependencies([done]):
                has_to_wait = rounds.push(made, found, apply=self._apply)
            position, *values = self._read()
        position, *values = tf.cond(
            has_to_wait, lambda: self._wait(made), lambda: [position, *values]
        )
        reply = self.answers.reply(
            header,
            status=pushed.status,
            version=position,
            staleness=pushed.staleness,
            handed=Handed(pushed.next_ticket, pushed.next_batches),
        )
        names = [native.shared_name for native in stage.wire.values.natives]
        named = dict(zip(names, values, strict=True))
        return [reply, reply_ids(stage.wire, ids), pack(stage.wire.server_reply, named)]

    def _quota(
        self, entries: Entries, fields: list[tf.Tensor], alive: tf.Tensor
    ) -> tf.Tensor | None:
        if self.quotas is None:
            return None
        return self.quotas.measured(
            entries,
            fields[Request.SLOT],
            alive=alive,
            microseconds=fields[Request.BATCH_MICROSECONDS],
        )

    def _contribution(self, fields: list[tf.Tensor], alive: tf.Tensor) -> Contribution:
        position, stage = fields[Request.BASE_VERSION], self.stage
        following = (position // MAX_STAGES + 1) * MAX_STAGES if stage.is_last else position + 1
        # Who was late for a stage has parameters of another one now, and is late for the next too.
        fits = position % MAX_STAGES == stage.number
        return Contribution(
            slot=fields[Request.SLOT],
            incarnation=fields[Request.INCARNATION],
            alive=alive,
            position=tf.where(fits, position, NOTHING),
            next_position=following,
        )

    def _apply(self, completes: tf.Tensor, *, compiled: bool = True) -> tf.Tensor:
        """The update of a complete round, which counts as one."""
        ledger = self.stage.server.ledger
        done = self.contributions.apply(completes, compiled=compiled)
        if self.stage.is_update:
            ledger.add(ledger.books.VERSION, tf.cast(completes, tf.int64))
        return done

    def _wait(self, made: Contribution) -> list[tf.Tensor]:
        # In a loop TensorFlow cannot take apart the conditions around an update that XLA compiles.
        apply = functools.partial(self._apply, compiled=False)
        end = self.rounds.wait(made, apply=apply)
        with tf.control_dependencies([end]), self.stage.server.ledger.locked():
            return self._read()

    def _read(self) -> list[tf.Tensor]:
        return [self.rounds.position(), *self.stage.values().values()]


class RoundRequest:
    """Traces how a worker gets the parameters of a round that it agrees on with all servers.

    A worker asks all servers for the same round, and again until all of them are at its begin.

    Args:
        rounds: of the server.
        held: the parameters.
        server: the server.
        answers: how replies are headed.
        enters: the worker takes part from that round on; else it does so already.
        joins: a new incarnation of the worker is let in by the same request.
    """

    def __init__(
        self,
        rounds: RoundGate,
        *,
        held: Parts,
        server: Server,
        answers: Answers,
        enters: bool,
        joins: bool = False,
    ) -> None:
        self.rounds, self.held, self.server = rounds, held, server
        self.answers, self.enters, self.joins = answers, enters, joins

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers such a request."""
        ledger, slot = self.server.ledger, header[Request.SLOT]
        ask = self.rounds.begin if self.enters else self.rounds.await_round
        with ledger.locked(), tf.control_dependencies(self._join(header)):
            entries = ledger.entries()
            incarnation = tf.where(self.answers.is_ours(header), header[Request.INCARNATION], -1)
            alive = entries.is_alive(slot, incarnation)
            if self.joins:  # it is the pull of a scheduled function
                entries.count(ledger.books.EXCHANGES)
                entries.count_traffic(received_bytes=0, sent_bytes=self.held.layout.size_bytes)
                ledger.post(entries)
            has_to_wait = ask(slot, alive, header[Request.BASE_VERSION])
            position, *values = self._read()
        waiting = Contribution(
            slot=slot,
            incarnation=incarnation,
            alive=alive,
            position=tf.constant(NOTHING, tf.int64),
            next_position=tf.constant(NOTHING, tf.int64),
        )
        position, *values = tf.cond(
            has_to_wait, lambda: self._wait(waiting), lambda: [position, *values]
        )
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        reply = self.answers.reply(header, status=status, version=position)
        names = [native.shared_name for native in self.held.natives]
        named = dict(zip(names, values, strict=True))
        return [reply, ids, pack(self.held.server_layout, named)]

    def _join(self, header: tf.Tensor) -> list[tf.Tensor]:
        return [join_if_new(self.server, self.answers, header)] if self.joins else []

    def _wait(self, waiting: Contribution) -> list[tf.Tensor]:
        end = self.rounds.wait(waiting, lambda _: tf.constant(0), for_all=self.enters)
        with tf.control_dependencies([end]), self.server.ledger.locked():
            return self._read()

    def _read(self) -> list[tf.Tensor]:
        return [self.rounds.position(), *(native.read_value() for native in self.held.natives)]
