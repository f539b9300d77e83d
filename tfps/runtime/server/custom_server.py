"""A custom loop's functions on one server: pull, push without tickets, and write-back."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.bridge.pieces import size_bytes_of
from tfps.bridge.server_function import server_function
from tfps.consistency.admission import Counted, count_update
from tfps.consistency.ledger import NO_TICKET, Entries, Status
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.worker_memory import WorkerAt
from tfps.optimizers.wrapped import devices_of, drop_above_of
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.pushed import NOT_MEASURED
from tfps.runtime.message.wire import (
    Parts,
    StageWire,
    gradient_of,
    name_of,
    parameter_layout,
    parameters_on,
    parts_of,
    pieces_on,
)
from tfps.runtime.program.program import Program
from tfps.runtime.server.handing_out import HandingOut
from tfps.runtime.server.server_stage import DURATIONS, count_durations, timed_update, when_done
from tfps.runtime.server.server_tables import (
    look_ups,
    received_bytes,
    reply_ids,
    unpacked,
)
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.layout import Layout
from tfps.transport.message import COORDINATOR, PROTOCOL, REQUEST_FIELDS, Kind, Reply, Request
from tfps.transport.packing import pack, unpack
from tfps.transport.service import Entry, Service

# There are no tickets. The field is 0 for workers, and this for the coordinator, which has no slot.
FROM_COORDINATOR = COORDINATOR

_numbers = itertools.count()  # two programs of equal layout are two plans


class Caller(NamedTuple):
    """Who makes a request; None: it does not matter.

    Args:
        slot: int64 (see `worker_of_call`).
        incarnation: int64, of a worker that takes part (see `member_of_call`).
        clock: int64, steps that it has completed.
    """

    slot: tf.Tensor | None = None
    incarnation: tf.Tensor | None = None
    clock: tf.Tensor | None = None


NOBODY = Caller()
NOT_TOLD: Mapping[Request, tf.Tensor] = {}


class Update(Protocol):
    """How a push changes the variables of a server: an optimizer, or a subtraction."""

    def apply(
        self,
        gradients: Mapping[str, tf.Tensor],
        *,
        device: str,
        staleness: tf.Tensor,
        sender: WorkerAt | None = None,
    ) -> None:
        """Trace the update of a device's variables; gradients by name of a variable or slab."""


class CustomServer:
    """The server's half of a scheduled function.

    What a coordinator schedules carries no ticket: a function that is run again after a worker was
    lost applies its gradients again, as in TensorFlow. Each push is still one atomic update.

    Args:
        program: what the function touches.
        runtime: the job.
        server: the server whose functions these are.
        update_of: the server-side update of an optimizer.
        handed: the updates of optimizers that may ask what a worker was answered.
        uses_replies: whether workers go on with what a push is answered with.
    """

    def __init__(
        self,
        program: Program,
        *,
        runtime: Runtime,
        server: Server,
        update_of: Callable[[Any], Update],
        handed: Sequence[ServerUpdate],
        uses_replies: bool,
    ) -> None:
        self.program, self.server, self._update_of = program, server, update_of
        self._handed, self._uses_replies = handed, uses_replies
        self.job_id = runtime.job_id
        self._held = parts_of(parameters_on(program, server.device))
        self.parameters, self.parameter_layout = self._held.variables, self._held.layout
        self.state = pieces_on(program.state, server.device)
        self.state_layout = parameter_layout(self.state)
        self.wires = [self._wire(stage.variables) for stage in program.stages]
        found = look_ups(
            program.tables, device=server.device, ledger=server.ledger, reply=self._found
        )
        self.look_ups = {number: self._function(found[number].trace) for number in found}
        text = repr((next(_numbers), self.parameter_layout, self.wires)).encode()
        self.plan_id = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
        self._functions = self._all_functions()
        self._install(runtime)

    @property
    def asks_who(self) -> bool:
        """Whether requests have to name the worker that makes them."""
        return any(update.asks_who for update in self._handed)

    def call(
        self,
        kind: Kind,
        payload: tf.Tensor,
        *,
        stage: int = 0,
        version: Any = 0,
        caller: Caller = NOBODY,
    ) -> ServerCall:
        """A request for one of this server's functions.

        Args:
            kind: of the request.
            payload: uint8 vector.
            stage: which optimizer call.
            version: of this server, that the payload was computed from.
            caller: who makes the request.
        """
        header = self.header(kind, stage=stage, version=version, caller=caller)
        return self.call_with(Message.of(header, payload), kind, stage=stage)

    def call_with(self, message: Message, kind: Kind, *, stage: int = 0) -> ServerCall:
        """The same with a message that is there."""
        entry, function = self._functions[kind, stage]
        return ServerCall(self.server.device, function, message, entry.reply_bytes)

    def header(
        self,
        kind: Kind,
        *,
        stage: int = 0,
        version: Any = 0,
        caller: Caller = NOBODY,
        told: Mapping[Request, tf.Tensor] = NOT_TOLD,
    ) -> tf.Tensor:
        """Of such a request; ``told`` are durations that the worker has measured before."""
        fields: list[Any] = [0] * REQUEST_FIELDS
        for field in DURATIONS:
            fields[field] = told.get(field, NOT_MEASURED)
        fields[Request.PROTOCOL], fields[Request.JOB] = PROTOCOL, self.job_id
        fields[Request.PLAN], fields[Request.BASE_VERSION] = self.plan_id, version
        fields[Request.KIND], fields[Request.STAGE] = int(kind), stage
        if caller.slot is not None:
            fields[Request.SLOT] = tf.maximum(caller.slot, tf.constant(0, tf.int64))
            fields[Request.TICKET] = tf.minimum(caller.slot, tf.constant(0, tf.int64))
        if caller.incarnation is not None:
            fields[Request.INCARNATION] = caller.incarnation
        if caller.clock is not None:
            fields[Request.CLOCK] = caller.clock
        return tf.stack([tf.cast(field, tf.int64) for field in fields])

    def _all_functions(self) -> dict[tuple[Kind, int], tuple[Entry, Any]]:
        pull_bytes = self.parameter_layout.size_bytes
        functions = {
            (Kind.PULL, 0): (Entry(Kind.PULL, 0, 0, pull_bytes), self._function(self._pull))
        }
        for stage, wire in enumerate(self.wires):
            sizes = wire.request.size_bytes, wire.reply.size_bytes
            rows = sum(size_bytes_of(piece._value) for piece in wire.tables)
            entry = Entry(Kind.PUSH, stage, *sizes, row_bytes=rows)
            functions[Kind.PUSH, stage] = (entry, self._function(self._push_of(stage)))
        for number, function in self.look_ups.items():
            functions[Kind.LOOK_UP, number] = (Entry(Kind.LOOK_UP, number, 0, 0), function)
        if self.state:
            entry = Entry(Kind.WRITE_BACK, 0, self.state_layout.size_bytes, 0)
            functions[Kind.WRITE_BACK, 0] = (entry, self._function(self._write_back))
        return functions

    @property
    def functions(self) -> list[Any]:
        """The functions of the service, in its order."""
        return [function for _, function in self._functions.values()]

    def _install(self, runtime: Runtime) -> None:
        entries = tuple(entry for entry, _ in self._functions.values())
        service = Service(self.job_id, self.plan_id, runtime.workers, entries)
        functions = self.functions
        runtime.data_plane.install(self.server, service, functions, hot=min(1, len(functions) - 1))
        runtime.forget_with(self, [(self.server.index, self.plan_id)])

    def _wire(self, variables: Sequence[Any]) -> StageWire:
        device, known = self.server.device, {id(table) for table in self.program.tables}
        here = parts_of(pieces_on([v for v in variables if id(v) not in known], device))
        return StageWire(
            gradients=here,
            state=(),
            counts=(),
            values=here,
            request=Layout.of(here.entries(gradients=True, of_server=False)),
            reply=here.layout,
            server_request=Layout.of(here.entries(gradients=True, of_server=True)),
            server_reply=here.server_layout,
            tables=pieces_on([v for v in variables if id(v) in known], device),
        )

    def _function(self, trace: Callable[..., Sequence[tf.Tensor]]) -> Any:
        return server_function(
            trace, device=self.server.device, signature=Message.signature(REQUEST_FIELDS)
        )

    def _pull(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        ledger = self.server.ledger
        with ledger.locked():
            entries = ledger.entries()
            version = entries.read(ledger.books.VERSION)
            entries.count_if(tf.constant(True), ledger.books.EXCHANGES)
            entries.count_traffic(received_bytes=0, sent_bytes=self.parameter_layout.size_bytes)
            ledger.post(entries)
            values = {native.shared_name: native.read_value() for native in self._held.natives}
            sender = sender_of(header, version)
            self._handing_out(self._held).note(sender, counts=sender.is_worker, is_first=True)
        return [reply_header(version), ids, pack(self._held.server_layout, values)]

    def _push_of(self, stage: int) -> Callable[..., Sequence[tf.Tensor]]:
        wire, optimizer = self.wires[stage], self.program.stages[stage].optimizer

        def push(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
            ledger, tensors = self.server.ledger, unpacked(wire, ids, payload)
            with ledger.locked():
                entries = ledger.entries()
                counted = count_update(
                    entries,
                    base_version=header[Request.BASE_VERSION],
                    drop_above=drop_above_of(optimizer),
                )
                sender = sender_of(header, header[Request.BASE_VERSION])
                self._change(stage, tensors, counted, sender)
                entries.count_traffic(
                    received_bytes=received_bytes(wire, ids, payload),
                    sent_bytes=wire.reply.size_bytes,
                )
                count_durations(self.server, entries, header)
                ledger.post(entries)
                values = {native.shared_name: native.read_value() for native in wire.values.natives}
                if self._uses_replies:
                    sender = sender_of(header, counted.version)
                    handing_out = self._handing_out(wire.values)
                    handing_out.note(sender, counts=sender.is_worker, is_first=False)
            reply = reply_header(counted.version, counted.staleness, counted.status)
            return [reply, reply_ids(wire, ids), pack(wire.server_reply, values)]

        return push

    def _change(
        self, stage: int, tensors: Mapping[str, Any], counted: Counted, sender: WorkerAt
    ) -> None:
        """What a push does to the variables.

        Args:
            stage: which optimizer call.
            tensors: of the request, by name.
            counted: what the books say of it.
            sender: whose it is.
        """
        optimizer = self.program.stages[stage].optimizer
        natives = self.wires[stage].updated
        gradients = {native.shared_name: tensors[gradient_of(native)] for native in natives}
        if self.server.device not in devices_of(optimizer):
            return

        def apply() -> None:
            self._update_of(optimizer).apply(
                gradients,
                device=self.server.device,
                staleness=counted.staleness,
                sender=sender,
            )

        def timed() -> tf.Tensor:
            return timed_update(self.server, lambda: when_done(apply))

        if counted.fresh is True:
            timed()
        else:
            tf.cond(counted.fresh, timed, lambda: tf.constant(0))

    def _found(self, header: tf.Tensor, entries: Entries) -> tf.Tensor:
        """The header of an answer with rows."""
        return reply_header(entries.read(self.server.ledger.books.VERSION))

    def _handing_out(self, parts: Parts) -> HandingOut:
        return HandingOut(self._handed, natives=parts.natives, device=self.server.device)

    def _write_back(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """What the function assigned itself: changes add up, moving averages mix."""
        ledger, changes = self.server.ledger, unpack(self.state_layout, payload)
        with ledger.locked():
            entries = ledger.entries()
            workers = ledger.books.slots
            for variable in self.state:
                value, change = variable._value, changes[name_of(variable)]
                if value.dtype.is_bool:
                    value.assign(change, read_value=False)
                elif value.dtype.is_floating and not variable.trainable:
                    value.assign_add(change / workers, read_value=False)
                else:
                    value.assign_add(change, read_value=False)
            version = entries.read(ledger.books.VERSION)
        return [reply_header(version), ids, tf.zeros([0], tf.uint8)]


def sender_of(header: tf.Tensor, version: tf.Tensor) -> WorkerAt:
    """Who has made a request, and what it has computed from or is handed."""
    is_worker = header[Request.TICKET] != FROM_COORDINATOR
    return WorkerAt(header[Request.SLOT], version, is_worker)


def reply_header(
    version: tf.Tensor, staleness: Any = 0, status: Any = int(Status.OK), *, clock: Any = 0
) -> tf.Tensor:
    """The header of a reply; there are no tickets."""
    fields = {
        Reply.STATUS: status,
        Reply.VERSION: version,
        Reply.STALENESS: staleness,
        Reply.NEXT_TICKET: NO_TICKET,
        Reply.AHEAD_TICKET: NO_TICKET,
        Reply.NEXT_BATCHES: 0,
        Reply.CLOCK: clock,
    }
    return tf.stack([tf.cast(fields[field], tf.int64) for field in Reply])
