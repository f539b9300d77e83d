"""What a push does on a server that applies each gradient when it arrives."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.gate import Gate, OpenGate
from tfps.optimizers.worker_memory import WorkerAt
from tfps.optimizers.wrapped import drop_above_of
from tfps.runtime.message.answers import Answers, Handed
from tfps.runtime.server import bookkeeping
from tfps.runtime.server.bookkeeping import Turn
from tfps.runtime.server.handing_out import HandingOut
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.server_stage import ServerStage, count_durations
from tfps.runtime.server.server_tables import received_bytes, reply_ids, unpacked
from tfps.transport.message import Request
from tfps.transport.packing import pack


class Push:
    """Traces one stage's push: admit, apply, hand out the next ticket, reply.

    Args:
        stage: what it changes.
        pipelined: workers compute a step while the one before is on its way.
        answers: how replies are headed.
        reports: where the step before is counted; None: not with this push.
        handing_out: notes what workers are answered.
    """

    def __init__(
        self,
        stage: ServerStage,
        *,
        pipelined: bool,
        answers: Answers,
        reports: Reports | None,
        handing_out: HandingOut,
    ) -> None:
        self.stage, self.server, self.answers = stage, stage.server, answers
        # A step ends with its last push.
        self.gate: Gate = stage.server.gate if stage.is_last else OpenGate()
        self.reports, self.handing_out = reports, handing_out
        self.turn = Turn(
            stage=stage.number,
            is_update=stage.is_update,
            hands_out=reports is not None,
            received_bytes=stage.wire.request.size_bytes,
            sent_bytes=stage.wire.reply.size_bytes,
            pipelined=pipelined,
            drop_above=drop_above_of(stage.optimizer) if stage.is_update else None,
        )

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers a push."""
        stage, ledger = self.stage, self.server.ledger
        tensors = unpacked(stage.wire, ids, payload)
        turn = replace(self.turn, received_bytes=received_bytes(stage.wire, ids, payload))
        fields = tf.unstack(header)
        cell = ledger.window_cell(fields[Request.TICKET])
        with ledger.locked():
            entries = ledger.entries()
            pushed = bookkeeping.push(
                entries,
                header=fields,
                slot=entries.account(fields[Request.SLOT]),
                is_ours=self.answers.is_ours(header),
                turn=turn,
                applied_key=ledger.applied_key(cell),
            )
            if stage.is_last:
                count_durations(self.server, entries, header)
            sender = WorkerAt(fields[Request.SLOT], fields[Request.BASE_VERSION])
            done = stage.timed(
                pushed.fresh,
                lambda: stage.change(
                    tensors, staleness=pushed.staleness, workers=pushed.active, sender=sender
                ),
            )
            # The books say that it was applied when it was, and not if that failed.
            remembered = ledger.remember(cell=cell, key=pushed.remembered)
            for operation in (remembered, *ledger.post(entries)):
                private.run_after(operation, done.op)
            if self.reports is not None:
                self.reports.count(pushed.closed, tensors)
            has_to_wait = self.gate.end_step(
                fields[Request.SLOT], counts=pushed.alive, clock=fields[Request.CLOCK] + 1
            )
            values = stage.values()
            answered = sender._replace(version=pushed.version)
            self.handing_out.note(answered, counts=pushed.alive, is_first=False)
        version = pushed.version
        if has_to_wait is not None:
            version, *parts = tf.cond(
                has_to_wait,
                lambda: self.gate.wait(fields[Request.SLOT], lambda: self._read_again(sender)),
                lambda: [version, *values.values()],
            )
            values = dict(zip(values, parts, strict=True))
        reply = self.answers.reply(
            header,
            status=pushed.status,
            version=version,
            staleness=pushed.staleness,
            handed=Handed(pushed.next_ticket),
        )
        return [reply, reply_ids(stage.wire, ids), pack(stage.wire.server_reply, values)]

    def _read_again(self, sender: WorkerAt) -> list[tf.Tensor]:
        ledger = self.server.ledger
        version = ledger.entries().read(ledger.books.VERSION)
        self.handing_out.note(sender._replace(version=version), is_first=False)
        return [version, *self.stage.values().values()]
