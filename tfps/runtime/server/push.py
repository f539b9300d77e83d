"""The function of a push on a server: it admits, applies and counts the push, and replies."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.compiled_function import compiled_function
from tfps.consistency.server_ledger import GraphLedger
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.message.payload import coded_up, encode_values, named_values
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader, with_fields
from tfps.runtime.server.admission import Arrival, PushVerdict, Terms, judge
from tfps.runtime.server.coding_durations import CodingDurations
from tfps.runtime.server.delta_encoder import DeltaEncoder
from tfps.runtime.server.push_gate import PushGate
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.requests import record_pull, values_of
from tfps.runtime.server.server_optimizer_call import (
    UPDATE,
    Application,
    ServerOptimizerCall,
    count_durations,
)
from tfps.runtime.server.server_tables import received_bytes, reply_ids
from tfps.transport.message import COORDINATOR, Reply, Request


@dataclass(frozen=True)
class PushRequest:
    """A push, decoded."""

    header: Sequence[tf.Tensor]  # the header of the request
    tensors: Mapping[str, Any]  # its tensors, by name
    size: Any  # in bytes
    applied_key: tf.Tensor | None  # see `Arrival`


@dataclass(frozen=True)
class PushOutcome:
    """The decision about a push, and its effects."""

    arrival: Arrival  # the push
    verdict: PushVerdict  # the decision about it
    reply: tf.Tensor  # the header of the reply, if it is sent at once
    done: tf.Tensor  # a tensor that is ready after all changes


@dataclass(frozen=True)
class Push:
    """Traces the push of one optimizer call, in each mode and from each kind of sender."""

    call: ServerOptimizerCall  # the variables that it changes
    plan: PlanHeader  # checks that the request is of this plan
    terms: Terms  # the rule by which pushes count, and the limit of staleness
    application: Application  # applies an admitted push
    gate: PushGate  # decides when to reply
    updates: Sequence[ServerUpdate]  # of optimizers that ask for values sent to workers
    delta_encoder: DeltaEncoder  # the values that workers hold
    reports: Reports | None = None  # counts the step before; None: not with this push
    # The number of tickets that a worker gets next; None: one, or none with this push.
    quotas: Quotas | None = None
    tells_of_writes: bool = False  # whether the reply has the number of writes by others

    def trace(
        self, header: Sequence[tf.Tensor], ids: tf.Tensor, payload: tf.Tensor
    ) -> list[tf.Tensor]:
        """Trace the reply to a push: gather, decide, apply, scatter; then wait, if it has to."""
        server_ledger, wire = self.call.server.ledger, self.call.wire
        admission = self.terms.admission
        cell = admission.cell(header[Request.TICKET]) if admission.has_keys else None
        coding, size = CodingDurations(wire, server_ledger), received_bytes(wire, ids, payload)
        tensors = coding.decoded(ids, payload)
        with server_ledger.locked():
            with tf.control_dependencies(self.gate.prepare()):
                applied_key = None if cell is None else server_ledger.applied_key(cell)
            request = PushRequest(header, tensors, size, applied_key)
            outcome = self._compiled(request) if self._is_compiled else self._traced(request)
            arrival, verdict, done = outcome.arrival, outcome.verdict, outcome.done
            if cell is not None:
                remember = server_ledger.record_applied_key(cell=cell, key=verdict.remembered)
                private.run_after(remember, done.op)
            coding.count(header)
            has_to_wait, version = self.gate.end_step(arrival, verdict, done=done)
            counts = arrival.is_worker if arrival.alive is True else arrival.alive
            found = self._read(header[Request.WORKER], version, counts=counts)
        if has_to_wait is not None:
            read = functools.partial(self._read, header[Request.WORKER])
            found = tf.cond(has_to_wait, lambda: self.gate.wait(arrival, read), lambda: found)
        version, *values = found
        fields = {} if version is verdict.version else {Reply.VERSION: version}
        if self.tells_of_writes:
            fields[Reply.OTHER_WRITES] = values.pop()
        seed = tf.stack([tf.constant(self.call.server.index, tf.int64), version])

        def encode(values: list[tf.Tensor]) -> tuple[Mapping[Reply, tf.Tensor], tf.Tensor]:
            named = named_values(wire, values)
            sent = self.delta_encoder.encode(
                self.call.number, header, named, version=version, reply=outcome.reply, seed=seed
            )
            return sent.fields, encode_values(wire, named, seed=seed, sent=sent.data)

        durations, payload = coding.encoded(encode, values=values)
        reply = with_fields(outcome.reply, {**fields, **durations})
        return [reply, reply_ids(wire, ids), payload]

    @property
    def _is_compiled(self) -> bool:
        """Whether a push is one XLA kernel: not if quotas or rounds write the ledger themselves."""
        at_once = self.application == self.call.apply_at_once
        return at_once and self.quotas is None and self.call.is_maskable

    def _traced(self, request: PushRequest) -> PushOutcome:
        """Decide and apply as separate operations."""
        server_ledger = self.call.server.ledger
        ledger = server_ledger.open()
        arrival, verdict = self._judge(ledger, request)
        done = self.application(request.tensors, arrival, verdict)
        # The ledger counts the push after it was applied, and not if that failed.
        for operation in server_ledger.post(ledger):
            private.run_after(operation, done.op)
        self._count(verdict, request)
        return PushOutcome(arrival, verdict, _reply_of(verdict), done)

    def _compiled(self, request: PushRequest) -> PushOutcome:
        """Decide and apply in one XLA kernel, which writes old values for a refused push.

        Between operations TensorFlow hands work from thread to thread, also at a condition around
        an update: in a short push this takes most of the time. Users' code stays outside:
        schedules, and the merging of metric states. The kernel returns only the tensors that are
        used: each one more would be handed over as well.
        """
        call, server_ledger = self.call, self.call.server.ledger
        counts_inside = self.reports is None or self.reports.are_sums
        asked = {"fresh", "remembered"} | (set() if counts_inside else {"closed"})
        if self.gate.may_wait or any(update.asks_what_is_known for update in self.updates):
            asked |= {"alive", "is_worker"}
        traced: list[tuple[Arrival, PushVerdict]] = []
        rate, begin = call.rate(), tf.timestamp()

        @compiled_function
        def kernel(header: Any, tensors: Any, applied_key: Any) -> list[Any]:
            inside = PushRequest(header, tensors, request.size, applied_key)
            ledger = server_ledger.open()
            arrival, verdict = self._judge(ledger, inside)
            call.apply_masked(tensors, arrival, verdict, rate=rate)
            server_ledger.assign(ledger)
            if counts_inside:
                self._count(verdict, inside)
            traced.append((arrival, verdict))
            return [_reply_of(verdict), _tensors_of(arrival, asked), _tensors_of(verdict, asked)]

        with tf.control_dependencies([begin]):
            reply, arrived, decided = kernel(request.header, request.tensors, request.applied_key)
        arrival, verdict = traced[-1]
        header = request.header
        arrival = replace(arrival, header=header, worker=header[Request.WORKER], **arrived)
        verdict = replace(verdict, version=reply[Reply.VERSION], **decided)
        with tf.control_dependencies([reply]):
            server_ledger.count_seconds(UPDATE, tf.timestamp() - begin, counts=verdict.fresh)
        if not counts_inside:
            self._count(verdict, request)
        return PushOutcome(arrival, verdict, reply, reply)

    def _arrival(self, ledger: GraphLedger, request: PushRequest) -> Arrival:
        """Return the push, with the ledger's view of its sender and of the other workers."""
        admission, header = self.terms.admission, request.header
        worker = header[Request.WORKER]
        if not admission.knows_senders:
            is_worker = True if admission.has_keys else header[Request.TICKET] != COORDINATOR
            arrival = Arrival(header, worker, True, True, is_worker, request.applied_key)
            return self.gate.arrive(arrival)
        is_ours = self.plan.is_ours(header)
        alive = ledger.is_alive(worker, tf.where(is_ours, header[Request.INCARNATION], -1))
        quota = None
        if self.quotas is not None:
            took = header[Request.BATCH_MICROSECONDS]
            quota = self.quotas.after_measurement(ledger, worker, alive=alive, microseconds=took)
        return self.gate.arrive(
            Arrival(header, worker, is_ours, alive, applied_key=request.applied_key, quota=quota)
        )

    def _judge(self, ledger: GraphLedger, request: PushRequest) -> tuple[Arrival, PushVerdict]:
        """Decide about a push, and count it."""
        arrival = self._arrival(ledger, request)
        verdict = judge(ledger, self.terms, arrival)
        wire, groups = self.call.wire, self.call.server.coded_groups
        ledger.count_traffic(
            received_bytes=request.size,
            sent_bytes=wire.reply.size_bytes,
            coded=[
                *groups.assign_numbers("up", coded_up(wire, request.tensors)),
                *groups.assign_numbers("down", wire.coded_down),
            ],
        )
        if not self.terms.admission.has_tickets:
            ledger.count(ledger.layout.OTHER_WRITES)
        if self.call.is_last:
            count_durations(self.call.server, ledger, request.header)
        return arrival, verdict

    def _count(self, verdict: PushVerdict, request: PushRequest) -> None:
        """Count the report of the step before."""
        if self.reports is not None:
            self.reports.count(verdict.closed, request.tensors)

    def _read(
        self, worker: tf.Tensor, version: tf.Tensor, *, counts: tf.Tensor | bool = True
    ) -> list[tf.Tensor]:
        """Read the contents of the reply: version, values, and the number of other writes."""
        server_ledger = self.call.server.ledger
        held, known = self.call.wire.values, WorkerAt(worker, version)
        record_pull(self.updates, held, known, self.call.server, counts=counts)
        found = [version, *values_of(held)]
        if self.tells_of_writes:
            found.append(server_ledger.read(server_ledger.layout.OTHER_WRITES))
        return found


def _reply_of(verdict: PushVerdict) -> tf.Tensor:
    reply = ReplyHeader(verdict.version, verdict.status, verdict.staleness, verdict.grant)
    return reply.tensor()


def _tensors_of(found: Arrival | PushVerdict, names: Collection[str]) -> dict[str, tf.Tensor]:
    """Return those of the named attributes that are tensors."""
    values = {name: getattr(found, name) for name in names if hasattr(found, name)}
    return {name: tf.identity(value) for name, value in values.items() if tf.is_tensor(value)}
