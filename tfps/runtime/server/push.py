"""What a push does on a server: it is admitted, applied and counted, and answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.ledger import Entries
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader
from tfps.runtime.server.admission import Arrival, PushVerdict, Terms, judge
from tfps.runtime.server.application import Application
from tfps.runtime.server.pull_recorder import PullRecorder
from tfps.runtime.server.push_gate import PushGate
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall, count_durations
from tfps.runtime.server.server_tables import received_bytes, reply_ids, unpacked
from tfps.transport.message import COORDINATOR, Request
from tfps.transport.packing import pack


@dataclass(frozen=True)
class Push:
    """Traces the push of one optimizer call, whatever the mode and whoever sends it.

    Args:
        call: what it changes.
        plan: of the request.
        terms: whose pushes count, and when one is too late.
        application: what becomes of an admitted one.
        gate: when it is answered.
        recorder: records what workers are answered.
        reports: where the step before is counted; None: not with this push.
        quotas: how many tickets a worker gets next; None: one, or none with this push.
    """

    call: ServerOptimizerCall
    plan: PlanHeader
    terms: Terms
    application: Application
    gate: PushGate
    recorder: PullRecorder
    reports: Reports | None = None
    quotas: Quotas | None = None

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers a push."""
        call, ledger = self.call, self.call.server.ledger
        tensors, fields = unpacked(call.wire, ids, payload), tf.unstack(header)
        cell = ledger.window_cell(fields[Request.TICKET])
        sender = self._sender(fields)
        with ledger.locked():
            entries = ledger.entries()
            arrival = self._arrival(entries, header, fields, cell=cell)
            place = self.gate.arrive(fields, arrival.alive)
            arrival = arrival.at(in_time=place.in_time, position=place.position)
            verdict = judge(entries, self.terms, arrival)
            entries.count_traffic(
                received_bytes=received_bytes(call.wire, ids, payload),
                sent_bytes=call.wire.reply.size_bytes,
            )
            if call.is_last:
                count_durations(call.server, entries, header)
            done = self.application.take(tensors, arrival, verdict, sender)
            self._post(entries, verdict, cell=cell, done=done)
            if self.reports is not None:
                self.reports.count(verdict.closed, tensors)
            has_to_wait, version = self.gate.end_step(fields, place, verdict, done=done)
            found = [version, *call.values().values()]
            counts = sender.is_worker if verdict.alive is True else verdict.alive
            answered = sender._replace(version=verdict.version)
            self.recorder.record(answered, counts=counts, is_first=False)
        if has_to_wait is not None:

            def read(version: tf.Tensor) -> list[tf.Tensor]:
                self.recorder.record(sender._replace(version=version), is_first=False)
                return [version, *call.values().values()]

            found = tf.cond(has_to_wait, lambda: self.gate.wait(fields, place, read), lambda: found)
        version, *values = found
        reply = ReplyHeader(version, verdict.status, verdict.staleness, verdict.grant)
        names = [native.shared_name for native in call.wire.values.natives]
        named = dict(zip(names, values, strict=True))
        return [reply.tensor(), reply_ids(call.wire, ids), pack(call.wire.server_reply, named)]

    def _sender(self, fields: list[tf.Tensor]) -> WorkerAt:
        """Who pushes, and what it has computed from."""
        is_worker: Any = True
        if not self.terms.admission.knows_senders:
            is_worker = fields[Request.TICKET] != COORDINATOR
        return WorkerAt(fields[Request.WORKER], fields[Request.BASE_VERSION], is_worker)

    def _arrival(
        self, entries: Any, header: tf.Tensor, fields: list[tf.Tensor], *, cell: tf.Tensor
    ) -> Arrival:
        admission, ledger = self.terms.admission, self.call.server.ledger
        if not admission.knows_senders:
            return Arrival(fields, fields[Request.WORKER], is_ours=True, alive=True)
        worker, is_ours = entries.account(fields[Request.WORKER]), self.plan.is_ours(header)
        incarnation = tf.where(is_ours, fields[Request.INCARNATION], -1)
        alive = entries.is_alive(worker, incarnation)
        return Arrival(
            fields,
            worker,
            is_ours=is_ours,
            alive=alive,
            applied_key=ledger.applied_key(cell) if admission.has_keys else None,
            quota=self._quota(entries, fields, alive),
        )

    def _quota(
        self, entries: Entries, fields: list[tf.Tensor], alive: tf.Tensor
    ) -> tf.Tensor | None:
        if self.quotas is None:
            return None
        return self.quotas.measured(
            entries,
            fields[Request.WORKER],
            alive=alive,
            microseconds=fields[Request.BATCH_MICROSECONDS],
        )

    def _post(
        self, entries: Entries, verdict: PushVerdict, *, cell: tf.Tensor, done: tf.Tensor
    ) -> None:
        """The ledger says that it was applied when it was, and not if that failed."""
        ledger = self.call.server.ledger
        operations = ledger.post(entries)
        if verdict.remembered is not None:
            operations.append(ledger.remember(cell=cell, key=verdict.remembered))
        for operation in operations:
            private.run_after(operation, done.op)
