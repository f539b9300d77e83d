"""A scheduled function on a worker: variables come in one pull, an optimizer call is one push."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.worker_variable import WorkerVariable
from tfps.optimizers.whole_model import for_whole_model
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.wire import gradient_name, in_pieces, name_of, received
from tfps.runtime.program.devices import Meeting, Replica
from tfps.runtime.program.program import Program
from tfps.runtime.program.shares import gradients_together
from tfps.runtime.server.custom_server import NOBODY, Caller, CustomServer
from tfps.runtime.worker.exchange_times import ExchangeTimes, microseconds, timed_exchange
from tfps.runtime.worker.round_agreement import Found
from tfps.runtime.worker.table_rows import TableRows, with_rows
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.runtime.worker.worker_index import worker_of_call
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply
from tfps.transport.packing import pack


class CustomStep:
    """Traces one run of a scheduled function (see `bridge.step_scope.StepTrace`).

    Args:
        program: what the function touches; its ``metrics`` are all variables that live elsewhere
            than on servers, each read and added to where it lives.
        servers: the function's halves on the servers.
        runtime: the job.
    """

    position = None  # a scheduled function has no ticket

    def __init__(
        self, program: Program, *, servers: Sequence[CustomServer], runtime: Runtime
    ) -> None:
        self.program, self.servers, self.runtime = program, servers, runtime
        # Of tables there is a name only, by which tapes find their gradients.
        touched = [*program.variables, *program.tables, *program.metrics]
        self.tables = TableRows(program, servers=servers, carrier=runtime.carrier)
        self.copies = WorkerCopies(touched, devices=program.devices.names)
        # As in TensorFlow the gradients of replicas are summed up, whatever their batches hold.
        self._shares = [tf.constant(1.0, tf.float64)] * len(self.copies)
        self._meeting = Meeting(self, shares=self._shares)
        self._written = (*program.state, *program.metrics)
        self._before: dict[int, tf.Tensor] = {}
        self._followed = {id(variable): variable for variable in self._weights_to_follow()}
        # In a resource, because optimizer calls may stand in loops and nested functions.
        self._at_home = WorkerCopies([*self._followed.values()], devices=[None])
        self._stage = 0
        self._times = ExchangeTimes(runtime)
        self._caller = self._who_calls()
        # In a resource, because optimizer calls may stand in loops and nested functions.
        self._versions = private.anonymous_variable(
            shape=tf.TensorShape([len(servers)]), dtype=tf.int64
        )

    def _weights_to_follow(self) -> Sequence[Any]:
        """Those that the function trains and assigns as well: only the latter is written back."""
        trained = {id(v) for stage in self.program.stages for v in stage.variables}
        return [variable for variable in self.program.state if id(variable) in trained]

    def _who_calls(self) -> Caller:
        asks_who = any(server.asks_who for server in self.servers)
        return Caller(worker_of_call()) if asks_who else NOBODY

    def _who_pushes(self) -> Caller:
        return self._caller

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
        # Whose newest version is only known when the push before is answered.
        versions = tf.unstack(self._versions.read_value(), num=len(self.servers))

        def header(p: int) -> tf.Tensor:
            return self.servers[p].header(
                Kind.LOOK_UP, stage=number, version=versions[p], caller=self._caller
            )

        copy = self.value_of(keras_variable)
        return self.tables.look_up(number, ids, header=header, copy=copy)

    def once(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        return function(list(tensors))

    def replica(self, device: int) -> Replica:
        return Replica(self, device=device, meeting=self._meeting)

    def divide(self, run: Callable[[], Any]) -> Any:
        before = {id(v): tf.identity(self.copies.read(v)) for v in self._written}
        answer = run()
        for variable in self._written:
            old = before[id(variable)]
            self.copies.load(
                variable, self.copies.together(variable, before=old, shares=self._shares)
            )
        return answer

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        variables = list(variables if variables is not None else optimizer._trainable_variables)
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        dense = [self.tables.gradient(g, v) for g, v in pairs]
        self.apply_parts(optimizer, [dense], [v for _, v in pairs])

    def apply_parts(
        self, optimizer: Any, parts: Sequence[Sequence[tf.Tensor]], variables: Sequence[Any]
    ) -> None:
        stage, self._stage = self._stage, self._stage + 1
        values = for_whole_model(
            optimizer,
            gradients_together(parts, self._shares, variables=variables),
            variables=variables,
            value_of=self.value_of,
        )
        for value, variable in zip(values, variables, strict=True):
            self.tables.take_back(variable, value)
        self._push(stage, {gradient_name(v): g for g, v in zip(values, variables, strict=True)})

    def _push(self, stage: int, named: Mapping[str, tf.Tensor]) -> None:
        variables = self.program.stages[stage].variables
        others = self.tables.others(variables)
        named = {**named, **in_pieces(named, others, name=gradient_name)}
        rows = self.tables.to_push(self.program.stages[stage])
        versions = tf.unstack(self._versions.read_value(), num=len(self.servers))
        caller = self._who_pushes()
        calls = {}
        told = self._times.fields()
        for p, server in enumerate(self.servers):
            header = server.header(
                Kind.PUSH, stage=stage, version=versions[p], caller=caller, told=told
            )
            message = with_rows(header, pack(server.wires[stage].request, named), rows.get(p))
            calls[p] = server.call_with(message, Kind.PUSH, stage=stage)
        replies, duration = timed_exchange(self.runtime.carrier, calls)
        self._times.has_pushed(duration)
        self._take_answers(stage, replies)

    def _take_answers(self, stage: int, replies: dict[int, Message]) -> None:
        """Go on with what a push was answered with."""
        layouts = [server.wires[stage].reply for server in self.servers]
        payloads = [replies[p].payload for p in range(len(self.servers))]
        for variable, value in received(self.program.variables, layouts, payloads):
            self._take_over(variable, value)
        self._versions.assign(versions_of(replies), read_value=False)

    def pull(self) -> None:
        """Load all variables: one request per server."""
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            found = self._ask()
        self._times.has_pulled(microseconds(begin, until=[*found.versions, *found.payloads]))
        self._load(found, self._begin_with)
        for variable in self.program.metrics:
            self.copies.load(variable, tf.identity(variable._value.read_value()))
        self._before = {id(v): tf.identity(self.copies.read(v)) for v in self._written}

    def _ask(self) -> Found:
        empty = tf.zeros([0], tf.uint8)
        calls = {
            p: server.call(Kind.PULL, empty, caller=self._caller)
            for p, server in enumerate(self.servers)
        }
        replies = self.runtime.carrier.exchange(calls)
        self._answered_pull(replies)
        return Found.of(replies)

    def _answered_pull(self, replies: dict[int, Message]) -> None:
        """What follows from a pull, beside the variables' values."""

    def _load(self, found: Found, load: Callable[[Any, tf.Tensor], None]) -> None:
        """Let all variables of all servers have the values that were found."""
        layouts = [server.parameter_layout for server in self.servers]
        for variable, value in received(self.program.variables, layouts, found.payloads):
            load(variable, value)
        self._versions.assign(tf.stack(found.versions), read_value=False)

    def _begin_with(self, variable: Any, value: tf.Tensor) -> None:
        if id(variable) in self._followed:
            self._at_home.load(variable, value)
        self.copies.load(variable, value)

    def _take_over(self, variable: Any, value: tf.Tensor) -> None:
        """A newer value from home; what the function has assigned since the pull comes on top."""
        if id(variable) in self._followed:
            assigned = self._change(variable)
            self._at_home.load(variable, value)
            value = value + assigned
        self.copies.load(variable, value)

    def write_back(self) -> None:
        """Send home what the function assigned: the difference to what was pulled."""
        calls = {}
        state = self.program.state
        changes = {name_of(v): self._change(v) for v in state}
        changes = in_pieces(changes, state, name=name_of)
        for p, server in enumerate(self.servers):
            if server.state:
                calls[p] = server.call(Kind.WRITE_BACK, pack(server.state_layout, changes))
        if calls:
            replies = self.runtime.carrier.exchange(calls)
            for reply in replies.values():
                # Keeps the call: nothing else uses its answer.
                tf.debugging.assert_equal(reply.header[Reply.STATUS], tf.constant(0, tf.int64))
        for variable in self.program.metrics:
            if self.copies.is_assigned(variable):
                variable._value.assign_add(self._change(variable))

    def _change(self, variable: Any) -> tf.Tensor:
        now = self.copies.read(variable)
        if id(variable) in self._followed:
            return now - self._at_home.read(variable)
        return now if now.dtype.is_bool else now - self._before[id(variable)]


def versions_of(replies: dict[int, Message]) -> tf.Tensor:
    """Of all servers."""
    return tf.stack([replies[p].header[Reply.VERSION] for p in sorted(replies)])
