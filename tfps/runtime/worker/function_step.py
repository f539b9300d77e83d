"""Traces a scheduled function on a worker: one pull, and one push per optimizer call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.applied_window import WRITE_BACK
from tfps.runtime.coordinator.function_run import capture_run_identity
from tfps.runtime.message.duration import measure_microseconds
from tfps.runtime.message.moved_state import MovedState, add_change, get_begin_name
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import UNCHANGED, Fields
from tfps.runtime.message.wire import split_tensors
from tfps.runtime.program.devices import ReplicaBarrier
from tfps.runtime.program.program import is_metric, is_seed
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import (
    ServerReplies,
    exchange_timed,
    get_field_by_server,
    get_payloads,
)
from tfps.runtime.worker.exchange_times import ExchangeTimes
from tfps.runtime.worker.function_counts import FunctionCounts
from tfps.runtime.worker.kept_values import KeptFactors
from tfps.runtime.worker.step import Step
from tfps.runtime.worker.unchanged_values import UnchangedValues
from tfps.runtime.worker.worker_copies import WorkerCopies
from tfps.runtime.worker.worker_index import capture_caller_fields, capture_stream
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply, Request
from tfps.transport.packing import pack


class FunctionStep(Step):
    """Traces one run of a scheduled function.

    Resources keep its values between exchanges, because optimizer calls may stand in loops and
    nested functions.

    Args:
        servers: the function's halves on the servers. The ``metrics`` of their program are all
            variables outside of the servers; a run reads them there, and changes them at its end.
    """

    servers: Sequence[FunctionHalf]

    def __init__(self, servers: Sequence[FunctionHalf]) -> None:
        self.runtime = servers[0].runtime
        super().__init__(servers, carrier=self.runtime.data_plane.carrier)
        # As in TensorFlow the gradients of replicas are summed, even if their batches differ in
        # size.
        self.shares = [tf.constant(1.0, tf.float64)] * len(self.copies)
        self.barrier = ReplicaBarrier(self, shares=self.shares)
        self._written = (*self.program.state, *self.program.metrics)
        self._before: dict[int, tf.Tensor] = {}
        self._followed = {id(variable): variable for variable in self._find_followed_variables()}
        self._kept = KeptFactors(self.program, self.copies, is_single_step=False)
        self._server_values = WorkerCopies([*self._followed.values()], devices=[None])
        self._unchanged = UnchangedValues(servers)
        self._times = ExchangeTimes(self.runtime)
        changes = self.program.calls or self.program.state
        self.run = capture_run_identity(self.runtime) if changes else None
        self._caller_fields = self._get_caller_fields()
        self._versions = private.create_anonymous_variable(shape=[len(servers)], dtype=tf.int64)
        # The number of optimizer calls whose pushes were answered.
        self.calls_done = private.create_anonymous_variable(
            shape=tf.TensorShape([]), dtype=tf.int64
        )

    @functools.cached_property
    def _stream(self) -> tf.Tensor:
        """The stream that seed generators draw from."""
        return capture_stream(self.runtime)

    def _find_followed_variables(self) -> Sequence[Any]:
        """Return the assigned variables whose newer values come from servers during a run.

        Optimizer calls change them as well, or the worker may be late for a round, and then gets
        all variables of another one.
        """
        program = self.program
        changed = {id(v) for call in program.calls for v in program.get_changed_variables(call)}
        gets_all = self.servers[0].has_function(Kind.AWAIT_ROUND)
        return [
            variable
            for variable in self.program.state
            if id(variable) in changed
            or (gets_all and variable.dtype != "bool" and not is_seed(variable))
        ]

    def _get_caller_fields(self) -> Fields:
        """Return the header fields of all requests of the run."""
        return capture_caller_fields(self.servers)

    def push_fields(self) -> Fields:
        """Return further header fields of a push."""
        return {
            **self._times.read_fields(),
            Request.TICKET: self._key(self.compute_push_position()),
        }

    def compute_push_position(self) -> tf.Tensor:
        """Return the index, in this run, of the optimizer call that the next push brings."""
        return self.calls_done.read_value()

    def _key(self, position: tf.Tensor | int) -> tf.Tensor:
        """Return the key of a request, which is the same in another run of the same function."""
        assert self.run is not None
        return self.run.first_key + position

    def compute_push_key(self, call_number: int) -> tf.Tensor:
        return self._key(self.compute_push_position())

    @property
    def caller_fields(self) -> Fields:
        return self._caller_fields

    def get_versions_and_fields(self, kind: Kind) -> tuple[Sequence[Any], Fields]:
        if kind == Kind.WRITE_BACK:
            with tf.control_dependencies([self.calls_done.read_value()]):  # after the last push
                return (), {**self._caller_fields, Request.TICKET: self._key(WRITE_BACK)}
        if kind not in (Kind.PUSH, Kind.LOOK_UP):
            return (), self._caller_fields  # the newest one is known only after the push before
        versions = tf.unstack(self._versions.read_value(), num=len(self.servers))
        push_fields = self.push_fields() if kind == Kind.PUSH else {}
        return versions, {**self._caller_fields, **push_fields}

    def get_answered_pushes(self) -> Sequence[tf.Tensor]:
        return [self._versions.read_value()]

    def delay_pushes_until(self, operations: Sequence[Any]) -> None:
        if self.program.calls:
            with tf.control_dependencies(operations):
                versions = tf.identity(self._versions.read_value())
            self._versions.assign(versions, read_value=False)

    def run_parts(self, run: Callable[[], Any]) -> Any:
        before = {id(v): tf.identity(self.copies.read(v)) for v in self._written}
        result = run()
        united = [v for v in self._written if not is_seed(v)]  # each device has its own stream
        self.copies.merge_into_all(united, before, self.shares)
        return result

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        bodies = self.encode(call_number, tensors)
        codec_fields = self.codec_fields
        calls = self.make_requests(
            Kind.PUSH, bodies, call_number=call_number, extra_fields=codec_fields
        )
        replies, duration = exchange_timed(self.carrier, calls)
        self.commit_residuals(replies)
        took = self._load_replies(call_number, replies)
        self._times.record_push(duration, decoding=took)
        self.look_ups.continue_after(after=get_field_by_server(replies, Reply.VERSION))

    def _load_replies(self, call_number: int, replies: dict[int, Message]) -> Any:
        """Load the values in the replies to a push; returns the result of `load`."""
        took = self.load(get_payloads(replies), self.load_newer, call_number=call_number)
        self._versions.assign(
            tf.stack(get_field_by_server(replies, Reply.VERSION)), read_value=False
        )
        self.calls_done.assign_add(self.count_push_calls(), read_value=False)
        return took

    def count_push_calls(self) -> tf.Tensor:
        """Return the number of optimizer calls that a push brings."""
        return tf.constant(1, tf.int64)

    def pull(self) -> None:
        """Load all variables: one request per server, and one for outdated unchanged values."""
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            replies = self._pull_parameters()
        self._times.record_pull(
            measure_microseconds(begin, until=[*replies.versions, *replies.payloads])
        )
        self._load(replies, self.load_initial)
        self._unchanged.refresh(replies.other_writes, self._pull_unchanged)
        for variable, value in self._unchanged.read_values(self.program.variables):
            self.load_initial(variable, value)
        self.residuals.prepare()
        self.calls_done.assign(tf.constant(0, tf.int64), read_value=False)
        for variable in self.program.metrics:
            # No device: in a run of several steps a worker's copy takes the variable's place.
            native = variable._value
            value = tf.raw_ops.ReadVariableOp(resource=native.handle, dtype=native.dtype)
            self.load_initial(variable, tf.ensure_shape(value, native.shape))
        self._before = {id(v): tf.identity(self.copies.read(v)) for v in self._written}
        self._kept.begin()

    def _pull_unchanged(self, servers: Sequence[int]) -> dict[int, Message]:
        bodies = {server: Body(tf.zeros([0], tf.uint8)) for server in servers}
        return self.send_requests(Kind.PULL, bodies, call_number=UNCHANGED)

    def _pull_parameters(self) -> ServerReplies:
        return ServerReplies.from_replies(self.send_requests(Kind.PULL))

    def _load(self, replies: ServerReplies, take: Callable[[Any, tf.Tensor], None]) -> None:
        """Load all variables of all servers."""
        self.load(replies.payloads, take)
        self._versions.assign(tf.stack(replies.versions), read_value=False)

    def load_initial(self, variable: Any, value: tf.Tensor) -> None:
        if is_seed(variable):
            # Runs at the same time begin with the same count of draws.
            self.copies.load_seed(variable, value, stream=self._stream)
            return
        if id(variable) in self._followed:
            self._server_values.load(variable, value)
        super().load_initial(variable, value)

    def load_newer(self, variable: Any, value: tf.Tensor) -> None:
        """Load a newer value from the servers, and add the function's changes since the pull.

        Random generators keep their state, in a stream that no other worker draws from.
        """
        if is_seed(variable):
            return
        if id(variable) in self._followed:
            if id(variable) in self.program.paces:
                now, begin = self.copies.read(variable), self._server_values.read(variable)
                new = MovedState(now, begin, self._kept.read_factor(variable)).apply_to(value)
            else:
                new = self._add_change(variable, value)
            self._server_values.load(variable, value)
            value = new
        self.copies.load(variable, value)

    def write_back(self) -> None:
        """Send the assigned variables to the servers, with the pulled values."""
        program = self.program
        real = [*program.moved_variables, *program.mixed_variables]
        changes = {
            **split_tensors(program.state, self._compute_write_back),
            **split_tensors(real, self._read_begin, name=get_begin_name),
            **self._kept.to_tensors(),
        }
        bodies = {
            p: Body(pack(server.state_layout, changes))
            for p, server in enumerate(self.servers)
            if server.state
        }
        if bodies:
            # TensorFlow would prune the call: nothing else uses its result.
            for status in get_field_by_server(
                self.send_requests(Kind.WRITE_BACK, bodies), Reply.STATUS
            ):
                tf.debugging.assert_equal(status, tf.constant(0, tf.int64))
        counted = [v for v in self.program.metrics if self.copies.is_assigned(v)]
        if counted:
            # Changes of several workers add up; a single worker knows the new value of a metric.
            is_sequential, chief = self.program.is_sequential, self.runtime.topology.chief
            counts = FunctionCounts(
                counted, chief=chief, adds=lambda v: not (is_sequential and is_metric(v))
            )
            counts.trace_end(
                [self.copies.read(v) for v in counted], [self._before[id(v)] for v in counted]
            )

    def _compute_write_back(self, variable: Any) -> tf.Tensor:
        now = self.copies.read(variable)
        if id(variable) in self.program.paces or now.dtype.is_floating or now.dtype.is_bool:
            return now
        return now - self._read_begin(variable)

    def _add_change(self, variable: Any, value: tf.Tensor) -> tf.Tensor:
        now, begin = self.copies.read(variable), self._read_begin(variable)
        if now.dtype.is_floating:
            return add_change(value, new=now, begin=begin)
        return now if now.dtype.is_bool else value + (now - begin)

    def _read_begin(self, variable: Any) -> tf.Tensor:
        """Read a variable's value as it came from the servers with the pull or the newest reply."""
        is_followed = id(variable) in self._followed
        return self._server_values.read(variable) if is_followed else self._before[id(variable)]
