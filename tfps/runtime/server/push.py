"""What a push does on a server: it is admitted, applied and counted, and answered."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.ledger import Entries
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader
from tfps.runtime.server.admission import Arrival, PushVerdict, Terms, judge
from tfps.runtime.server.push_gate import PushGate
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.requests import payload_of, record_pull, values_of
from tfps.runtime.server.server_optimizer_call import (
    Application,
    ServerOptimizerCall,
    count_durations,
)
from tfps.runtime.server.server_tables import received_bytes, reply_ids, unpacked
from tfps.transport.message import COORDINATOR, Request


@dataclass(frozen=True)
class Push:
    """Traces the push of one optimizer call, whatever the mode and whoever sends it.

    Args:
        call: what it changes.
        plan: of the request.
        terms: whose pushes count, and when one is too late.
        application: what becomes of an admitted one.
        gate: when it is answered.
        updates: of optimizers that may ask what workers were answered.
        reports: where the step before is counted; None: not with this push.
        quotas: how many tickets a worker gets next; None: one, or none with this push.
    """

    call: ServerOptimizerCall
    plan: PlanHeader
    terms: Terms
    application: Application
    gate: PushGate
    updates: Sequence[ServerUpdate]
    reports: Reports | None = None
    quotas: Quotas | None = None

    def trace(
        self, header: Sequence[tf.Tensor], ids: tf.Tensor, payload: tf.Tensor
    ) -> list[tf.Tensor]:
        """The function that answers a push: gather, decide, apply, scatter; then wait, perhaps."""
        call, ledger, wire = self.call, self.call.server.ledger, self.call.wire
        tensors = unpacked(wire, ids, payload)
        cell = ledger.window_cell(header[Request.TICKET])
        with ledger.locked():
            entries = ledger.entries()
            arrival = self._arrival(entries, header, cell=cell)
            verdict = judge(entries, self.terms, arrival)
            entries.count_traffic(
                received_bytes=received_bytes(wire, ids, payload),
                sent_bytes=wire.reply.size_bytes,
            )
            if call.is_last:
                count_durations(call.server, entries, header)
            done = self.application(tensors, arrival, verdict)
            self._post(entries, verdict, cell=cell, done=done)
            if self.reports is not None:
                self.reports.count(verdict.closed, tensors)
            has_to_wait, version = self.gate.end_step(arrival, verdict, done=done)
            counts = arrival.is_worker if arrival.alive is True else arrival.alive
            found = self._read(header[Request.WORKER], version, counts=counts)
        if has_to_wait is not None:
            read = functools.partial(self._read, header[Request.WORKER])
            found = tf.cond(has_to_wait, lambda: self.gate.wait(arrival, read), lambda: found)
        version, *values = found
        reply = ReplyHeader(version, verdict.status, verdict.staleness, verdict.grant)
        return [reply.tensor(), reply_ids(wire, ids), payload_of(wire.values, values)]

    def _arrival(self, entries: Any, header: Sequence[tf.Tensor], *, cell: tf.Tensor) -> Arrival:
        """What the ledger says of a push, its sender, and the others."""
        admission, worker = self.terms.admission, header[Request.WORKER]
        if not admission.knows_senders:
            is_worker = header[Request.TICKET] != COORDINATOR
            return self.gate.arrive(Arrival(header, worker, True, True, is_worker))
        account, is_ours = entries.account(worker), self.plan.is_ours(header)
        alive = entries.is_alive(account, tf.where(is_ours, header[Request.INCARNATION], -1))
        applied_key = quota = None
        if admission.has_keys:
            applied_key = self.call.server.ledger.applied_key(cell)
        if self.quotas is not None:
            took = header[Request.BATCH_MICROSECONDS]
            quota = self.quotas.measured(entries, worker, alive=alive, microseconds=took)
        return self.gate.arrive(
            Arrival(header, account, is_ours, alive, applied_key=applied_key, quota=quota)
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

    def _read(
        self, worker: tf.Tensor, version: tf.Tensor, *, counts: tf.Tensor | bool = True
    ) -> list[tf.Tensor]:
        """What the reply brings from now: the version, then the values."""
        held, known = self.call.wire.values, WorkerAt(worker, version)
        record_pull(self.updates, held, known, self.call.server, counts=counts)
        return [version, *values_of(held)]
