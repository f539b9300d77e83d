"""Traces a step of `fit` on a worker: one batch, one ticket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.compression.delta import is_delta
from tfps.consistency.ledger import NO_TICKET, Status, key_of
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.duration import microseconds_between
from tfps.runtime.message.moved_state import get_begin_name, get_center_name
from tfps.runtime.message.payload import Body, decode_values
from tfps.runtime.message.request_header import NO_FIELDS, TOTALS, UNCHANGED, Fields
from tfps.runtime.message.wire import METRICS, split_tensors
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.closure_run import ClosureRun, State
from tfps.runtime.worker.delta_decoder import DeltaDecoder
from tfps.runtime.worker.exchange import (
    ServerReplies,
    build_requests,
    exchange_stamped,
    get_field_by_server,
)
from tfps.runtime.worker.kept_values import KeptFactors
from tfps.runtime.worker.step import Step
from tfps.runtime.worker.step_report import empty_report, step_report
from tfps.transport.carrier import Carrier, Message
from tfps.transport.message import Kind, Reply, Request
from tfps.transport.packing import pack, unpack


class FitStep(Step):
    """Traces steps of a closure run; between exchanges their values lie in the loop's state."""

    servers: Sequence[FitHalf]
    # Set when the worker joins.
    replies: ServerReplies  # the latest one with a ticket
    is_single_step = True  # whether state is exchanged after each step; else after a period
    clock: tf.Tensor  # the worker's clock when it joins

    def __init__(
        self, servers: Sequence[FitHalf], *, carrier: Carrier, closure_run: ClosureRun
    ) -> None:
        super().__init__(servers, carrier=carrier)
        self.closure_run = closure_run
        # The current step; set by `begin`, and updated by each exchange.
        self.ticket: tf.Tensor = tf.constant(NO_TICKET, tf.int64)
        self.versions: Sequence[tf.Tensor] = []
        self.report: Mapping[str, tf.Tensor] = {}
        self._replied_s: tf.Tensor = tf.constant(0.0, tf.float64)  # when its parameters came
        self.fields: Fields = NO_FIELDS
        self._graph: Any = None
        self._nested_versions: Any = None
        self._before: dict[int, tf.Tensor] = {}
        # The servers with variables that no step changes, and the number of others' writes that the
        # worker's copies of these include.
        self._unchanged = [p for p, server in enumerate(servers) if server.unchanged.variables]
        self._seen_writes: Any = None
        self._delta_decoder = DeltaDecoder(servers)
        self._is_only_worker = servers[0].runtime.workers == 1
        pairs = zip(self.program.seeds, self.program.draws_per_step, strict=True)
        self._varying_generators = [variable for variable, draws in pairs if draws is None]
        self.kept = KeptFactors(self.program, self.copies, is_single_step=self.is_single_step)

    @property
    def position(self) -> tf.Tensor:
        return self.ticket - self.closure_run.first

    @property
    def caller_fields(self) -> Fields:
        return {**self.closure_run.identity, Request.TICKET: self.ticket}

    def get_versions_and_fields(self, kind: Kind) -> tuple[Sequence[Any], Fields]:
        return self.versions, {**self.caller_fields, **self.fields}

    def get_answered_pushes(self) -> Sequence[tf.Tensor]:
        nested = self._nested_versions
        return self.versions if nested is None else [nested.read_value()]

    def delay_pushes_until(self, operations: Sequence[Any]) -> None:
        with tf.control_dependencies(operations):
            if self._nested_versions is None:
                self.versions = [tf.identity(version) for version in self.versions]
            else:
                versions = tf.identity(self._nested_versions.read_value())
                self._nested_versions.assign(versions, read_value=False)

    @property
    def seed(self) -> tf.Tensor:
        return self.closure_run.seed

    def compute_push_key(self, call_number: int) -> tf.Tensor:
        return key_of(self.ticket, call_number)

    def join(self) -> None:
        """Enter on all servers, load the parameters, and get the first ticket."""
        messages = self.send_requests(Kind.JOIN)
        header = messages[0].header
        with tf.control_dependencies(self.prepare_to_enter(messages)):
            replies = self.rounds.enter(ServerReplies.from_replies(messages))
        self.load(replies.payloads, self.load_initial)
        self._delta_decoder.begin(replies.payloads)
        for variable, state in self._seed_states(self.closure_run.first):
            self.copies.load_seed(variable, state)
        self.residuals.prepare()
        if self._unchanged:
            self._seen_writes = private.create_anonymous_variable(
                shape=[len(self._unchanged)], dtype=tf.int64
            )
            self._seen_writes.assign(self._stack_writes(replies.other_writes), read_value=False)
        self.versions = replies.versions
        self.clock = tf.reduce_max(get_field_by_server(messages, Reply.CLOCK))
        self.replies = replies._replace(next_ticket=header[Reply.NEXT_TICKET])
        self.closure_run.is_finite = tf.constant(True) if self.program.stops_at_nan else None

    def prepare_to_enter(self, messages: Mapping[int, Message]) -> Sequence[tf.Tensor]:
        """Trace work between the replies to a join and the first round; return what to wait for."""
        return []

    def on_push_replies(self, messages: Mapping[int, Message]) -> None:
        """Trace work after the replies to a push, before their values are loaded."""

    def pull_latest_report(self) -> dict[str, tf.Tensor]:
        """Pull the report from which the first step continues, after the worker has joined."""
        if not self.servers[0].has_function(Kind.PULL, TOTALS):
            return empty_report(self.program)
        # After the join, since the request names its versions: no worker before this one counts
        # now.
        bodies = {0: Body(tf.zeros([0], tf.uint8))}
        reply = self.send_requests(Kind.PULL, bodies, call_number=TOTALS)[0]
        report = unpack(self.servers[0].report_layout, reply.payload)
        return {**empty_report(self.program), **report}

    def begin(self, ticket: tf.Tensor, state: State, *, extra_fields: Fields = NO_FIELDS) -> None:
        """Begin a step with the values in a loop's state.

        Args:
            ticket: the ticket of the step.
            state: the versions of the loaded parameters, and when they came; the report of the
                step before, and header fields about it, which this step's push closes.
            extra_fields: header fields about this step.
        """
        self.ticket, self._call_number = ticket, 0
        self._graph, self._nested_versions = private.current_graph(), None
        self.versions = tf.unstack(state["versions"], num=len(self.servers))
        self.look_ups.begin(after=self.versions)
        self.report, self._replied_s = state["report"], state["replied_s"]
        self.fields = {**state["fields"], Request.WAIT_MICROSECONDS: state["wait"], **extra_fields}

    def run(self, batch: Any) -> dict[str, tf.Tensor]:
        """Trace one step on one batch; return its report (metric state and outputs)."""
        program = self.program
        states = program.totals.read_states(self.report[METRICS])
        for metric, state in zip(program.metrics, states, strict=True):
            self.copies.load(metric, state)
        self._load_seeds()
        undrawn = [tf.identity(self.copies.read(v)) for v in self._varying_generators]
        self._before = {
            id(v): self.copies.read(v)
            for v in program.state
            if v._value.dtype.is_integer or v.aggregation == "sum" or id(v) in program.paces
        }
        if self.is_single_step:
            self.kept.begin()
        outputs = program.devices.run(self, batch)
        self.look_ups.send_delayed()
        if program.stops_at_nan and isinstance(outputs, Mapping) and "loss" in outputs:
            loss = tf.cast(outputs["loss"], tf.float32)
            self.closure_run.is_finite = tf.reduce_all(tf.math.is_finite(loss))
        if program.calls and program.calls[-1].optimizer is None:
            self.exchange(len(program.calls) - 1, {})
        drawn = [
            self.copies.read(v) - s for v, s in zip(self._varying_generators, undrawn, strict=True)
        ]
        drawn = program.totals.report_draws(drawn, self.report[METRICS])
        return step_report(
            program, self.ticket, outputs, copies=self.copies, shares=self.shares, drawn=drawn
        )

    def _load_seeds(self) -> None:
        """Load the states that Keras's generators would have at this ticket, if these are known.

        Otherwise an only worker keeps its states, and of several each ticket has its own stream.
        """
        for variable, state in self._seed_states(self.ticket):
            if all(variable is not uneven for uneven in self._varying_generators):
                self.copies.load_seed(variable, state)
            elif not self._is_only_worker:
                self.copies.load_seed(variable, state, stream=1 + self.position)

    def _seed_states(self, ticket: tf.Tensor) -> list[tuple[Any, tf.Tensor]]:
        states = self.closure_run.compute_seed_states(ticket, self.program.draws_per_step)
        return list(zip(self.program.seeds, states, strict=True))

    def finish(self, report: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Report an evaluation step to the ticket server, and return the next ticket."""
        self.fields = NO_FIELDS
        bodies = {0: Body(pack(self.servers[0].report_layout, report))}
        return self.send_requests(Kind.FINISH, bodies)[0].header[Reply.NEXT_TICKET]

    def leave(self) -> list[tf.Tensor]:
        """Close the last ticket, leave all servers, and return their statuses."""
        report, nothing = pack(self.servers[0].report_layout, self.report), tf.zeros([0], tf.uint8)
        bodies = {p: Body(nothing if p else report) for p in range(len(self.servers))}
        return get_field_by_server(self.send_requests(Kind.LEAVE, bodies), Reply.STATUS)

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        is_nested = private.current_graph() is not self._graph
        if is_nested and self._nested_versions is None:
            self._nested_versions = self._versions_as_variable()
        if self._nested_versions is not None:
            self.versions = tf.unstack(self._nested_versions.read_value())
        replies = self.send_push(call_number, self.encode(call_number, tensors))
        if call_number == len(self.program.calls) - 1:
            # The next step is computed from parameters of one round on all servers.
            replies = self.rounds.complete(replies)
        took = self.load(replies.payloads, self.load_newer, call_number=call_number)
        replies = replies._replace(decode_microseconds=took)
        if call_number == len(self.program.calls) - 1:
            self.refresh_unchanged(replies)
        self.look_ups.continue_after(after=replies.versions)
        if self._nested_versions is not None:
            self._nested_versions.assign(tf.stack(replies.versions), read_value=False)
        if not is_nested:  # tensors of a branch end with it; the step's last exchange is outside
            self.replies, self.versions = replies, replies.versions

    def decode_reply(
        self, call_number: int | None, coded: CodedVector, data: tf.Tensor
    ) -> Mapping[str, tf.Tensor]:
        if call_number is None or not is_delta(coded.codec):
            return super().decode_reply(call_number, coded, data)
        return self._delta_decoder.decode_reply(call_number, coded, data)

    def refresh_unchanged(self, replies: ServerReplies) -> None:
        """Pull values that no step changes, if others have written them since the last pull."""
        if not self._unchanged:
            return
        writes = self._stack_writes(replies.other_writes)

        def pull() -> tf.Tensor:
            bodies = {p: Body(tf.zeros([0], tf.uint8)) for p in self._unchanged}
            calls = build_requests(
                self.servers,
                Kind.PULL,
                bodies,
                call_number=UNCHANGED,
                fields=self.closure_run.identity,
            )
            pulled = ServerReplies.from_replies(self.carrier.exchange(calls))
            layouts = [self.servers[p].unchanged_layout for p in self._unchanged]
            for variable, value in decode_values(layouts, pulled.payloads, self.program.variables):
                self.load_initial(variable, value)
            self._seen_writes.assign(tf.stack(pulled.other_writes), read_value=False)
            return tf.constant(0)

        is_new = tf.reduce_any(writes != self._seen_writes.read_value())
        tf.cond(tf.logical_and(replies.accepted, is_new), pull, lambda: tf.constant(0))

    def _stack_writes(self, writes: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.stack([writes[p] for p in self._unchanged])

    def _versions_as_variable(self) -> Any:
        """Return the versions as a variable; a branch that is perhaps not taken can change it."""
        with self._graph.as_default():
            variable = private.create_anonymous_variable(shape=[len(self.servers)], dtype=tf.int64)
            variable.assign(tf.stack(self.versions), read_value=False)
        return variable

    def get_extra_tensors(self, call_number: int) -> Mapping[str, tf.Tensor]:
        """Return the state that the step assigns, and the report of the previous step."""
        if not any(server.wires[call_number].state for server in self.servers):
            return self.report
        program, centers = self.program, self.program.centers_in_rounds
        variances = [variable for variable in program.moved_variables if id(variable) in centers]
        return {
            **split_tensors(program.state, self._compute_new_state),
            **split_tensors(program.moved_variables, self.read_before, name=get_begin_name),
            **split_tensors(
                variances, lambda v: self._compute_new_state(centers[id(v)]), name=get_center_name
            ),
            **self.kept.to_tensors(),
            **self.report,
        }

    def send_push(self, call_number: int, bodies: Mapping[int, Body]) -> ServerReplies:
        """Push encoded bodies, and return the replies, with the next ticket."""
        calls = self.make_requests(
            Kind.PUSH, bodies, call_number=call_number, extra_fields=self.codec_fields
        )
        messages, begin, end = exchange_stamped(self.carrier, calls)
        self.commit_residuals(messages)
        self.on_push_replies(messages)
        # With a worse status the worker was evicted, and its further steps do not count.
        replies, header = (
            ServerReplies.from_replies(messages, worst_status=Status.DUPLICATE),
            messages[0].header,
        )
        granted = tf.where(replies.accepted, header[Reply.NEXT_TICKET], NO_TICKET)
        return replies._replace(
            next_ticket=granted,
            microseconds=microseconds_between(begin, end),
            own_microseconds=microseconds_between(self._replied_s, begin),
            replied_s=end,
        )

    def read_before(self, variable: Any) -> tf.Tensor:
        """Return the value of a variable before the step assigned it."""
        return self._before[id(variable)]

    def read_state(self, variable: Any) -> tf.Tensor:
        """Return the value of a variable after the step, over all devices."""
        return self.copies.merge_value(variable, self._before, self.shares)

    def _compute_new_state(self, variable: Any) -> tf.Tensor:
        value = self.read_state(variable)
        if id(variable) in self.program.paces or not value.dtype.is_integer:
            return value
        return value - self.read_before(variable)
