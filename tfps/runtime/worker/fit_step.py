"""A program's step on a worker: variables are local copies, optimizer calls are exchanges."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.worker_variable import WorkerVariable
from tfps.consistency.ledger import NO_TICKET, Status
from tfps.metrics.additivity import updates_watched
from tfps.optimizers.whole_model import for_whole_model
from tfps.runtime.message.pushed import NOT_MEASURED, Pushed
from tfps.runtime.message.wire import gradient_name, in_pieces, name_of, received
from tfps.runtime.program.program import Program
from tfps.runtime.program.shares import gradients_together
from tfps.runtime.server.server_program import ServerProgram
from tfps.runtime.worker.exchange_times import timed_exchange
from tfps.runtime.worker.round_agreement import Found, RoundAgreement
from tfps.runtime.worker.step_report import StepReport
from tfps.runtime.worker.table_rows import TableRows, with_rows
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.message import PROTOCOL, Kind, Reply, Request
from tfps.transport.packing import pack


class FitStep:
    """Traces steps of a program inside one worker closure (see `bridge.step_scope.StepTrace`).

    Args:
        program: what the step touches.
        servers: the program's functions on each server.
        carrier: brings requests to them.
        job_id: goes into every message.
        slot: the worker's index.
        incarnation: of this closure.
    """

    def __init__(
        self,
        program: Program,
        *,
        servers: Sequence[ServerProgram],
        carrier: Carrier,
        job_id: int,
        slot: tf.Tensor,
        incarnation: tf.Tensor,
    ) -> None:
        self.program, self.servers, self.carrier = program, servers, carrier
        self.job_id, self.slot, self.incarnation = job_id, slot, incarnation
        self._rounds = RoundAgreement(
            servers,
            carrier=carrier,
            header=lambda kind, number: self._header(kind, version=number),
        )
        # Of tables there is a name only, by which tapes find their gradients.
        touched = [*program.variables, *program.tables, *program.metrics, *program.seeds]
        self.copies = WorkerCopies(touched, devices=program.devices.names)
        self.tables = TableRows(program, servers=servers, carrier=carrier)
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
        self._stage = 0
        self._graph: Any = None
        self._nested_versions: Any = None
        self._before: dict[int, tf.Tensor] = {}
        self.shares: Sequence[tf.Tensor] = ()  # of the devices in the batch; `Devices.run` says

    @property
    def position(self) -> tf.Tensor:
        """Of this step's ticket in its round."""
        return self.ticket - self.first

    def value_of(self, keras_variable: Any) -> WorkerVariable:
        return self.copies.on(0, keras_variable)

    def value_on(self, device: int, keras_variable: Any) -> WorkerVariable:
        return self.copies.on(device, keras_variable)

    def assign(self, keras_variable: Any, value: Any) -> None:
        self.copies.assign(keras_variable, value)

    def look_up(self, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        number = self.tables.number_of(keras_variable)
        if number is None:
            return None
        header, copy = self._header(Kind.LOOK_UP, number), self.value_of(keras_variable)
        return self.tables.look_up(number, ids, header=header, copy=copy)

    def once(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        return function(list(tensors))

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        variables = list(variables if variables is not None else optimizer._trainable_variables)
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        dense = [self.tables.gradient(g, v) for g, v in pairs]
        self.apply_parts(optimizer, [dense], [v for _, v in pairs])

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        stage = self.program.stages[self._stage]
        if stage.optimizer is not optimizer or [id(v) for v in variables] != [
            id(v) for v in stage.variables
        ]:
            raise RuntimeError(
                "the step called its optimizers in another order, or on other variables, than when "
                "it was traced first"
            )
        gradients = gradients_together(parts, self.shares, variables=variables)
        self.apply_together(optimizer, gradients, variables)

    def apply_together(
        self, optimizer: Any, gradients: list[tf.Tensor], variables: Sequence[Any]
    ) -> None:
        """What an optimizer call does with the gradients of a step, those of all devices."""
        values = for_whole_model(optimizer, gradients, variables=variables, value_of=self.value_of)
        for value, variable in zip(values, variables, strict=True):
            self.tables.take_back(variable, value)
        self._exchange({gradient_name(v): g for g, v in zip(values, variables, strict=True)})

    def join(self) -> tf.Tensor:
        """Enter on all servers and load the parameters; answers the first ticket."""
        header = self._header(Kind.JOIN)
        replies = self.carrier.exchange(
            {
                p: ServerCall(
                    s.server.device,
                    s.join,
                    Message.of(header(p)),
                    s.parameter_layout.size_bytes,
                )
                for p, s in enumerate(self.servers)
            }
        )
        self._take(self._rounds.enter(Found.of(replies)))
        self.ahead_ticket = replies[0].header[Reply.AHEAD_TICKET]
        self.next_batches = replies[0].header[Reply.NEXT_BATCHES]
        self.clock = tf.reduce_max([reply.header[Reply.CLOCK] for reply in replies.values()])
        return replies[0].header[Reply.NEXT_TICKET]

    def _take(self, found: Found) -> None:
        """All parameters of all servers, such as a join brings."""
        layouts = [server.parameter_layout for server in self.servers]
        for variable, value in received(self.program.variables, layouts, found.payloads):
            self.copies.load(variable, value)
        self.versions = list(found.versions)

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
        self.ticket, self._stage = ticket, 0
        self._graph, self._nested_versions = private.current_graph(), None
        self.versions = tf.unstack(versions, num=len(self.servers))
        self.report, self.fields = dict(report), dict(fields)
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
        if self.program.stages and self.program.stages[-1].optimizer is None:
            self._exchange({})
        return made.made_of(outputs, shares=self.shares)

    def finish(self, ticket: tf.Tensor, report: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Report an evaluation step to the ticket server; answers the next ticket."""
        server = self.servers[0]
        self.ticket, self.fields = ticket, {}
        request = Message.of(self._header(Kind.FINISH)(0), pack(server.report_layout, report))
        call = ServerCall(server.server.device, server.finish, request, 0)
        return self.carrier.exchange({0: call})[0].header[Reply.NEXT_TICKET]

    def leave(
        self, report: Mapping[str, tf.Tensor], fields: Mapping[Request, tf.Tensor]
    ) -> list[tf.Tensor]:
        """Close the last ticket and go out on all servers; answers their statuses."""
        self.ticket, self.fields = tf.constant(NO_TICKET, tf.int64), dict(fields)
        header = self._header(Kind.LEAVE)
        calls = {}
        for p, server in enumerate(self.servers):
            payload = tf.zeros([0], tf.uint8)
            if server.server.hands_out_tickets:
                payload = pack(server.report_layout, report)
            calls[p] = ServerCall(
                server.server.device, server.leave, Message.of(header(p), payload), 0
            )
        replies = self.carrier.exchange(calls)
        return [reply.header[Reply.STATUS] for reply in replies.values()]

    def _exchange(self, gradients: Mapping[str, tf.Tensor]) -> None:
        stage, self._stage = self._stage, self._stage + 1
        is_nested = private.current_graph() is not self._graph
        if is_nested and self._nested_versions is None:
            self._nested_versions = self._versions_as_variable()
        if self._nested_versions is not None:
            self.versions = tf.unstack(self._nested_versions.read_value())
        pushed = self._push(stage, self._payloads(stage, gradients))
        if stage == len(self.program.stages) - 1:
            pushed = self._at_one_round(pushed)
        self._load(stage, pushed.payloads)
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

    def _payloads(self, stage: int, gradients: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """What a stage sends to each server."""
        wires = [server.wires[stage] for server in self.servers]
        variables = self.tables.others(self.program.stages[stage].variables)
        state = self.program.state
        tensors = {**gradients, **in_pieces(gradients, variables, name=gradient_name)}
        if any(wire.state for wire in wires):
            new = {name_of(v): self._new_state(v) for v in state}
            tensors.update(in_pieces(new, state, name=name_of))
        tensors.update(self.report)
        return [pack(wire.request, tensors) for wire in wires]

    def _push(self, stage: int, payloads: Sequence[tf.Tensor]) -> Pushed:
        """Send payloads to all servers and wait for the replies."""
        header = self._header(Kind.PUSH, stage)
        rows = self.tables.to_push(self.program.stages[stage])
        calls = {
            p: ServerCall(
                server.server.device,
                server.pushes[stage],
                with_rows(header(p), payloads[p], rows.get(p)),
                server.wires[stage].reply.size_bytes,
            )
            for p, server in enumerate(self.servers)
        }
        replies, duration = timed_exchange(self.carrier, calls)
        headers = [replies[p].header for p in range(len(self.servers))]
        # A server that refuses a push has let this worker out: what it computes on counts nowhere.
        statuses = tf.stack([header[Reply.STATUS] for header in headers])
        counts = [statuses == known for known in (Status.OK, Status.LATE, Status.DUPLICATE)]
        accepted = tf.reduce_all(tf.reduce_any(counts, 0))
        return Pushed(
            payloads=[replies[p].payload for p in range(len(self.servers))],
            versions=[header[Reply.VERSION] for header in headers],
            accepted=accepted,
            next_ticket=tf.where(
                accepted, headers[0][Reply.NEXT_TICKET], tf.constant(NO_TICKET, tf.int64)
            ),
            next_batches=headers[0][Reply.NEXT_BATCHES],
            microseconds=duration,
        )

    def _at_one_round(self, pushed: Pushed) -> Pushed:
        """The parameters that the next step is computed from are of one round everywhere."""
        found = Found(pushed.payloads, pushed.versions, pushed.accepted)
        agreed = self._rounds.complete(found)
        return pushed._replace(payloads=list(agreed.payloads), versions=list(agreed.versions))

    def _load(self, stage: int, payloads: Sequence[tf.Tensor]) -> None:
        """Take over the parameters of all servers' replies."""
        layouts = [server.wires[stage].reply for server in self.servers]
        for variable, value in received(self.program.variables, layouts, payloads):
            self.copies.load(variable, value)

    def _header(self, kind: Kind, stage: int = 0, *, version: Any = None) -> Any:
        def of(server: int) -> tf.Tensor:
            values: dict[Request, Any] = {
                Request.PROTOCOL: PROTOCOL,
                Request.JOB: self.job_id,
                Request.PLAN: self.servers[server].plan_id,
                Request.KIND: int(kind),
                Request.SLOT: self.slot,
                Request.INCARNATION: self.incarnation,
                Request.TICKET: self.ticket,
                Request.STAGE: stage,
                Request.BASE_VERSION: self._base_version(server) if version is None else version,
                Request.CLOSES: NO_TICKET,
                Request.EXAMPLES: 0,
                Request.PUSH_MICROSECONDS: NOT_MEASURED,
                Request.PULL_MICROSECONDS: NOT_MEASURED,
                Request.WAIT_MICROSECONDS: NOT_MEASURED,
                Request.STEP_EXAMPLES: 0,
                Request.CLOSED_STEPS: 1,
                Request.CLOCK: 0,
                Request.BATCH_MICROSECONDS: NOT_MEASURED,
                **self.fields,
            }
            return tf.stack([tf.cast(values[field], tf.int64) for field in Request])

        return of

    def _base_version(self, server: int) -> Any:
        return self.versions[server] if self.versions else 0

    def _new_state(self, variable: Any) -> tf.Tensor:
        before = self._before.get(id(variable))
        value = self.copies.together(variable, before=before, shares=self.shares)
        return value - before if value.dtype.is_integer else value
