"""A scheduled function on a worker: variables come in one pull, an optimizer call is one push."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import Caller
from tfps.runtime.message.wire import in_shards, name_of
from tfps.runtime.program.devices import Meeting
from tfps.runtime.program.program import Program
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import Origin, column_of, microseconds, payloads_of
from tfps.runtime.worker.exchange_times import ExchangeTimes
from tfps.runtime.worker.round_agreement import Found
from tfps.runtime.worker.step import Step
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.runtime.worker.worker_index import caller_of_call
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply
from tfps.transport.packing import pack


class FunctionStep(Step):
    """Traces one run of a scheduled function.

    What it knows between exchanges lies in resources, because optimizer calls may stand in loops
    and nested functions.

    Args:
        program: what the function touches; its ``metrics`` are all variables that live elsewhere
            than on servers, each read and added to where it lives.
        servers: the function's halves on the servers.
        runtime: the job.
    """

    servers: Sequence[FunctionHalf]

    def __init__(
        self, program: Program, *, servers: Sequence[FunctionHalf], runtime: Runtime
    ) -> None:
        super().__init__(program, servers=servers, carrier=runtime.carrier)
        self.runtime = runtime
        # As in TensorFlow the gradients of replicas are summed up, whatever their batches hold.
        self.shares = [tf.constant(1.0, tf.float64)] * len(self.copies)
        self.meeting = Meeting(self, shares=self.shares)
        self._written = (*program.state, *program.metrics)
        self._before: dict[int, tf.Tensor] = {}
        self._followed = {id(variable): variable for variable in self._weights_to_follow()}
        self._at_home = WorkerCopies([*self._followed.values()], devices=[None])
        self._times = ExchangeTimes(runtime)
        self._caller = self._who_calls()
        self._versions = private.anonymous_variable(
            shape=tf.TensorShape([len(servers)]), dtype=tf.int64
        )

    def _weights_to_follow(self) -> Sequence[Any]:
        """Those that the function trains and assigns as well: only the latter is written back."""
        trained = {id(v) for call in self.program.calls for v in call.variables}
        return [variable for variable in self.program.state if id(variable) in trained]

    def _who_calls(self) -> Caller:
        return caller_of_call(self.servers)

    def _who_pushes(self) -> Caller:
        return self._caller

    def origin(self, kind: Kind) -> Origin:
        if kind == Kind.PUSH:
            return Origin(self._newest_versions(), self._who_pushes(), self._times.fields())
        # The newest is only known when the push before is answered.
        return Origin(self._newest_versions() if kind == Kind.LOOK_UP else (), self._caller)

    def _newest_versions(self) -> Sequence[tf.Tensor]:
        return tf.unstack(self._versions.read_value(), num=len(self.servers))

    def divide(self, run: Callable[[], Any]) -> Any:
        before = {id(v): tf.identity(self.copies.read(v)) for v in self._written}
        answer = run()
        for variable in self._written:
            old = before[id(variable)]
            self.copies.load(
                variable, self.copies.together(variable, before=old, shares=self.shares)
            )
        return answer

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        replies, duration = self.push(call_number, self.encode(call_number, tensors))
        self._times.has_pushed(duration)
        self._take_answers(call_number, replies)

    def _take_answers(self, call_number: int, replies: dict[int, Message]) -> None:
        """Go on with what a push was answered with."""
        self.load(payloads_of(replies), self.take_over, call_number=call_number)
        self._versions.assign(tf.stack(column_of(replies, Reply.VERSION)), read_value=False)

    def pull(self) -> None:
        """Load all variables: one request per server."""
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            found = self._pull_parameters()
        self._times.has_pulled(microseconds(begin, until=[*found.versions, *found.payloads]))
        self._load(found, self.begin_with)
        for variable in self.program.metrics:
            self.copies.load(variable, tf.identity(variable._value.read_value()))
        self._before = {id(v): tf.identity(self.copies.read(v)) for v in self._written}

    def _pull_parameters(self) -> Found:
        replies = self.ask(Kind.PULL)
        self._answered_pull(replies)
        return Found.of(replies)

    def _answered_pull(self, replies: dict[int, Message]) -> None:
        """What follows from a pull, beside the variables' values."""

    def _load(self, found: Found, take: Callable[[Any, tf.Tensor], None]) -> None:
        """Take all variables of all servers, such as were found."""
        self.load(found.payloads, take)
        self._versions.assign(tf.stack(found.versions), read_value=False)

    def begin_with(self, variable: Any, value: tf.Tensor) -> None:
        if id(variable) in self._followed:
            self._at_home.load(variable, value)
        super().begin_with(variable, value)

    def take_over(self, variable: Any, value: tf.Tensor) -> None:
        """A newer value from home; what the function has assigned since the pull comes on top."""
        if id(variable) in self._followed:
            assigned = self._change(variable)
            self._at_home.load(variable, value)
            value = value + assigned
        self.copies.load(variable, value)

    def write_back(self) -> None:
        """Send home what the function assigned: the difference to what was pulled."""
        state = self.program.state
        changes = in_shards({name_of(v): self._change(v) for v in state}, state, name=name_of)
        bodies = {
            p: Body(pack(server.state_layout, changes))
            for p, server in enumerate(self.servers)
            if server.state
        }
        if bodies:
            # The call would not be kept: nothing else uses its answer.
            for status in column_of(self.ask(Kind.WRITE_BACK, bodies), Reply.STATUS):
                tf.debugging.assert_equal(status, tf.constant(0, tf.int64))
        for variable in self.program.metrics:
            if self.copies.is_assigned(variable):
                variable._value.assign_add(self._change(variable))

    def _change(self, variable: Any) -> tf.Tensor:
        now = self.copies.read(variable)
        if id(variable) in self._followed:
            return now - self._at_home.read(variable)
        return now if now.dtype.is_bool else now - self._before[id(variable)]
