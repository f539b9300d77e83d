"""A step of `fit` on a worker: one batch, one ticket."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.ledger import NO_TICKET, Status
from tfps.metrics.additivity import updates_watched
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import NOT_MEASURED, Caller
from tfps.runtime.message.wire import in_shards, name_of
from tfps.runtime.program.program import Program
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.exchange import Origin, column_of, payloads_of
from tfps.runtime.worker.round_agreement import Found
from tfps.runtime.worker.step import Step
from tfps.runtime.worker.step_report import StepReport
from tfps.transport.carrier import Carrier
from tfps.transport.message import Kind, Reply, Request
from tfps.transport.packing import pack


class Pushed(NamedTuple):
    """The servers' answers to one push."""

    payloads: list[tf.Tensor]
    versions: list[tf.Tensor]
    accepted: tf.Tensor
    next_ticket: tf.Tensor
    microseconds: tf.Tensor
    next_batches: Any = 1  # how many tickets the next one stands for


class FitStep(Step):
    """Traces steps of a program of `fit`; what they know between exchanges lies in a loop's state.

    Args:
        program: what the step touches.
        servers: the program's functions on each server.
        carrier: brings requests to them.
        worker: the worker's index.
        incarnation: of this closure.
    """

    servers: Sequence[FitHalf]

    def __init__(
        self,
        program: Program,
        *,
        servers: Sequence[FitHalf],
        carrier: Carrier,
        worker: tf.Tensor,
        incarnation: tf.Tensor,
    ) -> None:
        super().__init__(program, servers=servers, carrier=carrier)
        self.worker, self.incarnation = worker, incarnation
        # What the current step knows; set by `begin`, moved on by each exchange.
        self.ticket: tf.Tensor = tf.constant(NO_TICKET, tf.int64)
        self.next_ticket: tf.Tensor = self.ticket
        self.next_batches: tf.Tensor = tf.constant(1, tf.int64)
        self.ahead_ticket: tf.Tensor = self.ticket
        self.accepted: tf.Tensor = tf.constant(True)
        self.versions: list[tf.Tensor] = []
        self.fields: dict[Request, Any] = {}
        self.report: dict[str, tf.Tensor] = {}
        self.push_microseconds: tf.Tensor = tf.constant(NOT_MEASURED, tf.int64)
        self.first: tf.Tensor = self.ticket  # of the round
        self.clock: Any = 0  # when it joined: where it goes on from
        self._graph: Any = None
        self._nested_versions: Any = None
        self._before: dict[int, tf.Tensor] = {}

    @property
    def position(self) -> tf.Tensor:
        return self.ticket - self.first

    def origin(self, kind: Kind) -> Origin:
        caller = Caller(self.worker, self.incarnation, ticket=self.ticket)
        return Origin(self.versions, caller, self.fields)

    def join(self) -> tf.Tensor:
        """Enter on all servers and load the parameters; answers the first ticket."""
        replies = self.ask(Kind.JOIN)
        found = self.rounds.enter(Found.of(replies))
        self.load(found.payloads, self.begin_with)
        self.versions = list(found.versions)
        self.ahead_ticket = replies[0].header[Reply.AHEAD_TICKET]
        self.next_batches = replies[0].header[Reply.NEXT_BATCHES]
        self.clock = tf.reduce_max(column_of(replies, Reply.CLOCK))
        return replies[0].header[Reply.NEXT_TICKET]

    def run(
        self,
        batch: Any,
        *,
        ticket: tf.Tensor,
        seeds: Sequence[tf.Tensor],
        versions: tf.Tensor,
        report: Mapping[str, tf.Tensor],
        fields: Mapping[Request, tf.Tensor],
    ) -> dict[str, tf.Tensor]:
        """One step on one batch; answers its report (metric state and outputs).

        Args:
            batch: as the model's step takes it.
            ticket: the right to this step.
            seeds: the state of each seed generator for this ticket.
            versions: of the parameters that are loaded, by server.
            report: of the step before, which this step's push closes.
            fields: header fields about the step before, and this one's number of examples.
        """
        self.begin(ticket, versions=versions, report=report, fields=fields)
        for metric, base in zip(self.program.metrics, self.program.totals.bases, strict=True):
            self.copies.load(metric, tf.constant(base))
        made = StepReport(self.program, copies=self.copies)
        for variable, seed in zip(self.program.seeds, seeds, strict=True):
            self.copies.load_seed(variable, seed)
        self._before = {
            id(v): self.copies.read(v)
            for v in self.program.state
            if v._value.dtype.is_integer or v.aggregation == "sum"
        }
        unproven = self.program.totals.unproven
        watch = functools.partial(made.watch, tf.equal(self.ticket, self.first))
        with updates_watched(unproven, watch):
            outputs = self.program.devices.run(self, batch)
        if self.program.calls and self.program.calls[-1].optimizer is None:
            self.exchange(len(self.program.calls) - 1, {})
        return made.made_of(outputs, shares=self.shares)

    def begin(
        self,
        ticket: tf.Tensor,
        *,
        versions: tf.Tensor,
        report: Mapping[str, tf.Tensor],
        fields: Mapping[Request, tf.Tensor],
    ) -> None:
        """Take what a loop's state says; see `run`."""
        self.ticket, self._call_number = ticket, 0
        self._graph, self._nested_versions = private.current_graph(), None
        self.versions = tf.unstack(versions, num=len(self.servers))
        self.report, self.fields = dict(report), dict(fields)

    def finish(self, ticket: tf.Tensor, report: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Report an evaluation step to the ticket server; answers the next ticket."""
        self.ticket, self.fields = ticket, {}
        bodies = {0: Body(pack(self.servers[0].report_layout, report))}
        return self.ask(Kind.FINISH, bodies)[0].header[Reply.NEXT_TICKET]

    def leave(
        self, report: Mapping[str, tf.Tensor], fields: Mapping[Request, tf.Tensor]
    ) -> list[tf.Tensor]:
        """Close the last ticket and go out on all servers; answers their statuses."""
        self.ticket, self.fields = tf.constant(NO_TICKET, tf.int64), dict(fields)
        bodies = {}
        for p, server in enumerate(self.servers):
            is_told = server.server.hands_out_tickets
            payload = pack(server.report_layout, report) if is_told else tf.zeros([0], tf.uint8)
            bodies[p] = Body(payload)
        return column_of(self.ask(Kind.LEAVE, bodies), Reply.STATUS)

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        is_nested = private.current_graph() is not self._graph
        if is_nested and self._nested_versions is None:
            self._nested_versions = self._versions_as_variable()
        if self._nested_versions is not None:
            self.versions = tf.unstack(self._nested_versions.read_value())
        pushed = self.send(call_number, self.encode(call_number, tensors))
        if call_number == len(self.program.calls) - 1:
            pushed = self._at_one_round(pushed)
        self.load(pushed.payloads, self.take_over, call_number=call_number)
        if self._nested_versions is not None:
            self._nested_versions.assign(tf.stack(pushed.versions), read_value=False)
        if is_nested:
            return  # its tensors end with the branch; the step's last exchange is outside of it
        self.push_microseconds, self.versions = pushed.microseconds, pushed.versions
        self.accepted, self.next_batches = pushed.accepted, pushed.next_batches
        self.next_ticket = pushed.next_ticket

    def _versions_as_variable(self) -> Any:
        """Of the parameters that are loaded; a branch that may not be taken can change it."""
        with self._graph.as_default():
            variable = private.anonymous_variable(shape=[len(self.servers)], dtype=tf.int64)
            variable.assign(tf.stack(self.versions), read_value=False)
        return variable

    def beside(self, call_number: int) -> Mapping[str, tf.Tensor]:
        """The state that the step writes itself, and the report of the step before."""
        state = self.program.state
        if not any(server.wires[call_number].state for server in self.servers):
            return self.report
        new = {name_of(v): self._new_state(v) for v in state}
        return {**in_shards(new, state, name=name_of), **self.report}

    def send(self, call_number: int, bodies: Mapping[int, Body]) -> Pushed:
        """Push bodies, and read the replies' headers."""
        replies, duration = self.push(call_number, bodies)
        # A server that refuses a push has let this worker out: what it computes on counts nowhere.
        statuses = tf.stack(column_of(replies, Reply.STATUS))
        counts = [statuses == known for known in (Status.OK, Status.LATE, Status.DUPLICATE)]
        accepted = tf.reduce_all(tf.reduce_any(counts, 0))
        handed = replies[0].header  # by the ticket server
        return Pushed(
            payloads=payloads_of(replies),
            versions=column_of(replies, Reply.VERSION),
            accepted=accepted,
            next_ticket=tf.where(
                accepted, handed[Reply.NEXT_TICKET], tf.constant(NO_TICKET, tf.int64)
            ),
            next_batches=handed[Reply.NEXT_BATCHES],
            microseconds=duration,
        )

    def _at_one_round(self, pushed: Pushed) -> Pushed:
        """The parameters that the next step is computed from are of one round everywhere."""
        found = Found(pushed.payloads, pushed.versions, pushed.accepted)
        agreed = self.rounds.complete(found)
        return pushed._replace(payloads=list(agreed.payloads), versions=list(agreed.versions))

    def _new_state(self, variable: Any) -> tf.Tensor:
        before = self._before.get(id(variable))
        value = self.copies.together(variable, before=before, shares=self.shares)
        return value - before if value.dtype.is_integer else value
