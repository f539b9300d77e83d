"""Traces the server function of a push: admits, applies and counts the push, and replies."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.compiled_function import compiled_function
from tfps.consistency.applied_window import cell_of_ticket
from tfps.consistency.ledger import MAX_CALLS, Status, key_of
from tfps.consistency.round_gate import RoundGate
from tfps.consistency.server_ledger import GraphLedger, ServerLedger
from tfps.runtime.message.payload import collect_reply_values, encode_values, measure_coded_parts
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader, set_fields
from tfps.runtime.server.admission import PushTerms, PushVerdict, ReceivedPush, decide_push
from tfps.runtime.server.coding_durations import CodingDurations
from tfps.runtime.server.delta_encoder import DeltaEncoder
from tfps.runtime.server.push_gate import PushGate
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.requests import read_values
from tfps.runtime.server.server_optimizer_call import (
    UPDATE,
    Application,
    ServerOptimizerCall,
    count_durations,
)
from tfps.runtime.server.server_tables import compute_received_bytes, get_reply_ids
from tfps.transport.message import Reply, Request


@dataclass(frozen=True)
class PushRequest:
    """A decoded push."""

    header: Sequence[tf.Tensor]  # the header of the request
    tensors: Mapping[str, Any]  # its tensors, by name
    size: Any  # in bytes
    applied_key: tf.Tensor | None  # see `ReceivedPush`


@dataclass(frozen=True)
class PushOutcome:
    """The decision about a push, and its effects."""

    arrival: ReceivedPush  # the push
    verdict: PushVerdict  # the decision about it
    reply: tf.Tensor  # the header of the reply, if it is sent at once
    done: tf.Tensor  # a tensor that is ready after all changes


@dataclass(frozen=True)
class Push:
    """Traces the push of one optimizer call, in each mode and from each kind of sender."""

    call: ServerOptimizerCall  # the variables that it changes
    plan: PlanHeader  # checks that the request is of this plan
    terms: PushTerms  # the rule by which pushes count, and the limit of staleness
    application: Application  # applies an admitted push
    gate: PushGate  # decides when to reply
    delta_encoder: DeltaEncoder  # the values that workers hold
    reports: Reports | None = None  # counts the step before; None: not with this push
    sends_write_count: bool = False  # whether the reply has the number of writes by others
    # The rounds that may be given up, where workers add up gradients among themselves. The reply
    # then says in its ids whether the next ticket was applied before.
    group: RoundGate | None = None

    def trace(
        self, header: Sequence[tf.Tensor], ids: tf.Tensor, payload: tf.Tensor
    ) -> list[tf.Tensor]:
        """Trace the reply to a push: decode, decide, apply, read; then wait if necessary."""
        server_ledger, wire = self.call.server.ledger, self.call.wire
        admission = self.terms.admission
        cell = admission.get_cell(header[Request.TICKET]) if admission.has_keys else None
        coding, size = (
            CodingDurations(wire, server_ledger),
            compute_received_bytes(wire, ids, payload),
        )
        tensors = coding.decode_push(ids, payload)
        with server_ledger.locked():
            with tf.control_dependencies(self.gate.prepare()):
                applied_key = None if cell is None else server_ledger.applied_key(cell)
            request = PushRequest(header, tensors, size, applied_key)
            outcome = (
                self._trace_compiled(request)
                if self._is_compiled
                else self._trace_separately(request)
            )
            arrival, verdict, done = outcome.arrival, outcome.verdict, outcome.done
            if cell is not None:
                remember = server_ledger.record_applied_key(cell=cell, key=verdict.new_applied_key)
                private.add_control_input(remember, done.op)
            coding.count(header)
            has_to_wait, version = self.gate.end_step(arrival, verdict, done=done)
            pulled = self._read(header, version)
            reply_ids = get_reply_ids(wire, ids)
            if self.group is not None:
                coding.count_sums(header)
                reply_ids = self.make_repeat_ids(server_ledger, verdict.next_ticket)
        if has_to_wait is not None:
            read = functools.partial(self._read, header)
            pulled = tf.cond(has_to_wait, lambda: self.gate.wait(arrival, read), lambda: pulled)
        version, *values = pulled
        fields = {} if version is verdict.version else {Reply.VERSION: version}
        if self.sends_write_count:
            fields[Reply.OTHER_WRITES] = values.pop()
        if self.group is not None:
            evicted = tf.constant(int(Status.EVICTED), tf.int64)
            # A round that was given up since then may have moved the position of this server alone.
            fields[Reply.VERSION] = (header[Request.BASE_VERSION] // MAX_CALLS + 1) * MAX_CALLS
            fields[Reply.STATUS] = tf.where(values.pop(), evicted, outcome.reply[Reply.STATUS])
        seed = tf.stack([tf.constant(self.call.server.index, tf.int64), version])

        def encode(values: list[tf.Tensor]) -> tuple[Mapping[Reply, tf.Tensor], tf.Tensor]:
            named = collect_reply_values(wire, values)
            sent = self.delta_encoder.encode(
                self.call.number, header, named, version=version, reply=outcome.reply, seed=seed
            )
            return sent.fields, encode_values(wire, named, seed=seed, already_encoded=sent.data)

        durations, payload = coding.encode_reply(encode, values=values)
        reply = set_fields(outcome.reply, {**fields, **durations})
        return [reply, reply_ids, payload]

    @staticmethod
    def make_repeat_ids(server_ledger: ServerLedger, ticket: tf.Tensor) -> tf.Tensor:
        """Return the ids that say whether a ticket was applied before, under the mutex."""
        known = server_ledger.applied_key(cell_of_ticket(tf.maximum(ticket, 0)))
        repeats = tf.logical_and(ticket >= 0, known >= key_of(ticket, 0))
        return tf.cast(repeats, tf.int64)[None]

    @property
    def _is_compiled(self) -> bool:
        """Whether XLA compiles a push into one kernel, which excludes rounds."""
        at_once = self.application == self.call.apply_at_once
        return at_once and self.call.is_maskable

    def _trace_separately(self, request: PushRequest) -> PushOutcome:
        """Decide and apply as separate operations."""
        server_ledger = self.call.server.ledger
        ledger = server_ledger.open()
        arrival, verdict = self._decide(ledger, request)
        done = self.application(request.tensors, arrival, verdict)
        # The ledger counts the push after it was applied, and not if that failed.
        for operation in server_ledger.write_changes(ledger):
            private.add_control_input(operation, done.op)
        self._count(verdict, request)
        return PushOutcome(arrival, verdict, _make_reply(verdict), done)

    def _trace_compiled(self, request: PushRequest) -> PushOutcome:
        """Decide and apply in one XLA kernel, which writes old values for a refused push.

        Between operations TensorFlow hands work from thread to thread, also at a condition around
        an update: in a short push this takes most of the time. Users' code stays outside:
        schedules, and the merging of metric states. The kernel returns only the tensors that are
        used: each one more would be handed over as well.
        """
        call, server_ledger = self.call, self.call.server.ledger
        counts_inside = self.reports is None or self.reports.are_sums
        read_names = {"fresh", "new_applied_key"} | (set() if counts_inside else {"closed"})
        if self.gate.may_wait:
            read_names |= {"alive"}
        traced: list[tuple[ReceivedPush, PushVerdict]] = []
        rate, begin = call.trace_learning_rate(), tf.timestamp()

        @compiled_function
        def kernel(header: Any, tensors: Any, applied_key: Any) -> list[Any]:
            kernel_request = PushRequest(header, tensors, request.size, applied_key)
            ledger = server_ledger.open()
            arrival, verdict = self._decide(ledger, kernel_request)
            call.apply_if_fresh(tensors, arrival, verdict, rate=rate)
            server_ledger.assign(ledger)
            if counts_inside:
                self._count(verdict, kernel_request)
            traced.append((arrival, verdict))
            return [
                _make_reply(verdict),
                _select_tensors(arrival, read_names),
                _select_tensors(verdict, read_names),
            ]

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

    def _receive(self, ledger: GraphLedger, request: PushRequest) -> ReceivedPush:
        """Return a received push, with the ledger's knowledge about its sender."""
        admission, header = self.terms.admission, request.header
        worker = header[Request.WORKER]
        if not admission.knows_senders:
            return self.gate.locate(ReceivedPush(header, worker, True, True, request.applied_key))
        matches_plan = self.plan.matches_plan(header)
        alive = ledger.is_alive(worker, tf.where(matches_plan, header[Request.INCARNATION], -1))
        return self.gate.locate(
            ReceivedPush(header, worker, matches_plan, alive, applied_key=request.applied_key)
        )

    def _decide(
        self, ledger: GraphLedger, request: PushRequest
    ) -> tuple[ReceivedPush, PushVerdict]:
        """Decide about a push, and count it."""
        arrival = self._receive(ledger, request)
        verdict = decide_push(ledger, self.terms, arrival)
        wire, groups = self.call.wire, self.call.server.coded_groups
        ledger.count_traffic(
            received_bytes=request.size,
            sent_bytes=wire.reply.size_bytes,
            coded=[
                *groups.assign_numbers("up", measure_coded_parts(wire, request.tensors)),
                *groups.assign_numbers("down", wire.encoded_reply_parts),
            ],
        )
        if not self.terms.admission.has_tickets:
            ledger.count(ledger.layout.OTHER_WRITES)
        if self.call.is_last:
            count_durations(self.call.server, ledger, request.header)
        return arrival, verdict

    def _count(self, verdict: PushVerdict, request: PushRequest) -> None:
        """Count the report of the previous step, which the push brings."""
        if self.reports is not None:
            self.reports.count(verdict.closed, request.tensors)

    def _read(self, header: Sequence[tf.Tensor], version: tf.Tensor) -> list[tf.Tensor]:
        """Read the reply's version, values, and number of writes by others."""
        server_ledger = self.call.server.ledger
        reply = [version, *read_values(self.call.wire.values)]
        if self.group is not None:
            reply.append(self.group.is_voided(header[Request.BASE_VERSION]))
        if self.sends_write_count:
            reply.append(server_ledger.read(server_ledger.layout.OTHER_WRITES))
        return reply


def _make_reply(verdict: PushVerdict) -> tf.Tensor:
    reply = ReplyHeader(verdict.version, verdict.status, verdict.staleness, verdict.next_ticket)
    return reply.to_tensor()


def _select_tensors(
    source: ReceivedPush | PushVerdict, names: Collection[str]
) -> dict[str, tf.Tensor]:
    """Return the named attributes that are tensors, by name."""
    values = {name: getattr(source, name) for name in names if hasattr(source, name)}
    return {name: tf.identity(value) for name, value in values.items() if tf.is_tensor(value)}
