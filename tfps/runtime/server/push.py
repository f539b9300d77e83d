"""What a push does on a server: it is admitted, applied and counted, and answered."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.server_ledger import ServerEntries
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader
from tfps.runtime.server.admission import Arrival, PushVerdict, Terms, judge
from tfps.runtime.server.push_gate import PushGate
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.requests import payload_of, record_pull, values_of
from tfps.runtime.server.server_optimizer_call import (
    UPDATE,
    Application,
    ServerOptimizerCall,
    count_durations,
)
from tfps.runtime.server.server_tables import received_bytes, reply_ids, unpacked
from tfps.transport.message import COORDINATOR, Request

# What of an arrival the request says by itself.
GIVEN = {"worker", "applied_key"}


@dataclass(frozen=True)
class PushRequest:
    """A push as it has come.

    Args:
        header: of the request.
        fields: of the header.
        tensors: that it brings, by name.
        size: in bytes.
        applied_key: see `Arrival`.
    """

    header: tf.Tensor
    fields: Sequence[tf.Tensor]
    tensors: Mapping[str, Any]
    size: Any
    applied_key: tf.Tensor | None


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

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers a push: gather, decide, apply, scatter; then wait, perhaps."""
        ledger, wire = self.call.server.ledger, self.call.wire
        tensors, fields = unpacked(wire, ids, payload), tf.unstack(header)
        cell = ledger.window_cell(fields[Request.TICKET])
        size = received_bytes(wire, ids, payload)
        with ledger.locked():
            applied_key = ledger.applied_key(cell) if self.terms.admission.has_keys else None
            request = PushRequest(header, fields, tensors, size, applied_key)
            answer = self._compiled if self._is_compiled else self._traced
            arrival, verdict, done = answer(request)
            if verdict.remembered is not None:
                private.run_after(ledger.remember(cell=cell, key=verdict.remembered), done.op)
            if self.reports is not None:
                self.reports.count(verdict.closed, tensors)
            has_to_wait, version = self.gate.end_step(arrival, verdict, done=done)
            counts = arrival.is_worker if arrival.alive is True else arrival.alive
            found = self._read(fields[Request.WORKER], version, counts=counts)
        if has_to_wait is not None:
            read = functools.partial(self._read, fields[Request.WORKER])
            found = tf.cond(has_to_wait, lambda: self.gate.wait(arrival, read), lambda: found)
        version, *values = found
        reply = ReplyHeader(version, verdict.status, verdict.staleness, verdict.grant)
        return [reply.tensor(), reply_ids(wire, ids), payload_of(wire.values, values)]

    @property
    def _is_compiled(self) -> bool:
        """Whether a push is one kernel: quotas and rounds change the ledger by themselves."""
        at_once = self.application == self.call.apply_at_once
        return at_once and self.quotas is None and self.call.is_maskable

    def _traced(self, request: PushRequest) -> tuple[Arrival, PushVerdict, tf.Tensor]:
        """Decide and apply, operation by operation; answers when it is applied."""
        ledger = self.call.server.ledger
        entries = ledger.entries()
        arrival = self._arrival(entries, request)
        verdict = self._judge(entries, request, arrival)
        done = self.application(request.tensors, arrival, verdict)
        # The ledger says that it was applied when it was, and not if that failed.
        for operation in ledger.post(entries):
            private.run_after(operation, done.op)
        return arrival, verdict, done

    def _compiled(self, request: PushRequest) -> tuple[Arrival, PushVerdict, tf.Tensor]:
        """The same as one kernel of XLA, which writes all values, and old ones for a refused push.

        After each operation that runs elsewhere TensorFlow hands what follows from thread to
        thread, and a condition around an update is one as well: of a short push most of the time.
        """
        call, ledger, fields = self.call, self.call.server.ledger, request.fields
        traced: list[tuple[Arrival, PushVerdict]] = []
        rate, begin = call.rate(), tf.timestamp()

        @tf.function(jit_compile=True, autograph=False)
        def kernel(header: tf.Tensor, tensors: Any, applied_key: Any) -> list[dict[str, tf.Tensor]]:
            inside = PushRequest(header, tf.unstack(header), tensors, request.size, applied_key)
            entries = ledger.entries()
            arrival = self._arrival(entries, inside)
            verdict = self._judge(entries, inside, arrival)
            call.apply_masked(tensors, arrival, verdict, rate=rate)
            ledger.assign(entries)
            traced.append((arrival, verdict))
            return [_tensors_of(each) for each in (arrival, verdict, verdict.grant)]

        with tf.control_dependencies([begin]):
            found, decided, granted = kernel(
                request.header, call.gradients_in(request.tensors), request.applied_key
            )
        arrival, verdict = traced[-1]
        grant = replace(verdict.grant, **granted)
        verdict = replace(verdict, **decided, grant=grant)
        arrival = replace(arrival, **found, header=fields, worker=fields[Request.WORKER])
        with tf.control_dependencies([verdict.version]):
            ledger.count_seconds(UPDATE, tf.timestamp() - begin, counts=verdict.fresh)
        return arrival, verdict, verdict.version

    def _arrival(self, entries: ServerEntries, request: PushRequest) -> Arrival:
        """What the ledger says of a push, its sender, and the others."""
        admission, fields = self.terms.admission, request.fields
        worker = fields[Request.WORKER]
        if not admission.knows_senders:
            is_worker = fields[Request.TICKET] != COORDINATOR
            return self.gate.arrive(Arrival(fields, worker, True, True, is_worker))
        account, is_ours = entries.account(worker), self.plan.is_ours(request.header)
        alive = entries.is_alive(account, tf.where(is_ours, fields[Request.INCARNATION], -1))
        quota = None
        if self.quotas is not None:
            took = fields[Request.BATCH_MICROSECONDS]
            quota = self.quotas.measured(entries, worker, alive=alive, microseconds=took)
        return self.gate.arrive(
            Arrival(fields, account, is_ours, alive, applied_key=request.applied_key, quota=quota)
        )

    def _judge(self, entries: ServerEntries, request: PushRequest, arrival: Arrival) -> PushVerdict:
        """Decide, and count what has come."""
        verdict = judge(entries, self.terms, arrival)
        sent = self.call.wire.reply.size_bytes
        entries.count_traffic(received_bytes=request.size, sent_bytes=sent)
        if self.call.is_last:
            count_durations(self.call.server, entries, request.header)
        return verdict

    def _read(
        self, worker: tf.Tensor, version: tf.Tensor, *, counts: tf.Tensor | bool = True
    ) -> list[tf.Tensor]:
        """What the reply brings from now: the version, then the values."""
        held, known = self.call.wire.values, WorkerAt(worker, version)
        record_pull(self.updates, held, known, self.call.server, counts=counts)
        return [version, *values_of(held)]


def _tensors_of(found: Any) -> dict[str, tf.Tensor]:
    """What is known of a push only when it comes, by the name of the field."""
    fields = {name: value for name, value in vars(found).items() if tf.is_tensor(value)}
    return {name: tf.identity(value) for name, value in fields.items() if name not in GIVEN}
