"""The server's half of a program: its functions on one server, by what asks for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.bridge.server_function import server_function
from tfps.bridge.shards import shards_of, size_bytes_of
from tfps.consistency.gate import OpenGate
from tfps.consistency.ledger import Entries
from tfps.consistency.round_gate import RoundGate
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.wrapped import drop_above_of
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.runtime.message.reply_header import PlanHeader
from tfps.runtime.message.request_header import SLOTS
from tfps.runtime.message.wire import CallWire, Parts, name_of, parts_of, shards_on
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import AdmissionPolicy, Terms
from tfps.runtime.server.application import Application, AtOnce, IntoRound
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.pull_recorder import PullRecorder
from tfps.runtime.server.push import Push
from tfps.runtime.server.push_gate import ClockGate, PushGate, RoundBarrier
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.requests import SlotPull
from tfps.runtime.server.round_pull import RoundPull
from tfps.runtime.server.server_delta import DeltaCall
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall, Update
from tfps.runtime.server.server_tables import LookUp, look_ups, table_bytes
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.message import REQUEST_FIELDS, Kind
from tfps.transport.service import Entry, Service


class RequestTrace(Protocol):
    """What traces the answer to a request."""

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> Sequence[tf.Tensor]:
        """The header, the ids and the payload of the reply."""


class Offer(NamedTuple):
    """A function that workers may ask for."""

    entry: Entry
    function: Any
    row_bytes: int = 0  # of rows in the reply, at most


class ServerHalf:
    """A program's functions on one server; they are there as long as this object.

    Args:
        program: what the step touches.
        runtime: the job.
        server: the server whose functions these are.
        update_of: the server-side update of an optimizer.
        updates: of optimizers that may ask what a worker was answered.
        name: of the plan, which is one of its own.
    """

    records_pushes = True  # workers go on with what a push is answered with

    def __init__(
        self,
        program: Program,
        *,
        runtime: Runtime,
        server: Server,
        update_of: Callable[[Any], Update],
        updates: Sequence[ServerUpdate],
        name: str,
    ) -> None:
        self.program, self.runtime, self.server = program, runtime, server
        # In which pushes are applied.
        self.rounds: RoundGate | None = server.rounds if program.schedule.in_rounds else None
        self.update_of, self.updates = update_of, updates
        self.job_id = runtime.job_id
        self.held = parts_of(shards_on(program.variables, server.device))
        self.parameters, self.parameter_layout = self.held.variables, self.held.layout
        self.slots = self.slot_shards()
        self.slot_layout = self.slots.layout
        self.wires = [self.wire(number) for number in range(len(program.calls))]
        messages = [(wire.request, wire.reply) for wire in self.wires]
        tables = [[name_of(p) for p in shards_of(table)] for table in program.schedule.tables]
        text = repr((name, self.parameter_layout, messages, tables)).encode()
        self.plan_id = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
        self.plan = PlanHeader(self.job_id, self.plan_id)
        self._contributions: list[Contributions] = []  # kept, since servers find them by name
        self._offers: dict[tuple[Kind, int], Offer] = {}
        self.offer_all()
        self._install()

    @property
    def asks_who(self) -> bool:
        """Whether requests have to name the worker that makes them."""
        return any(update.asks_who for update in self.updates)

    def slot_shards(self) -> Parts:
        """What optimizers keep on workers, of this server's variables."""
        local = self.program.schedule.local
        return parts_of(shards_on(() if local is None else local.slots, self.server.device))

    def wire(self, number: int) -> CallWire:
        """The messages of an optimizer call."""
        raise NotImplementedError

    def offer_all(self) -> None:
        """Trace the functions: first the one that a worker begins with, then the pushes."""
        raise NotImplementedError

    def offers(self, kind: Kind, call_number: int = 0) -> bool:
        """Whether there is a function for a kind of requests."""
        return (kind, call_number) in self._offers

    def function(self, kind: Kind, call_number: int = 0) -> Any:
        """The function that answers a kind of requests."""
        return self._offers[kind, call_number].function

    def call(self, kind: Kind, message: Message, *, call_number: int = 0) -> ServerCall:
        """A request for one of these functions.

        Args:
            kind: of the request.
            message: what it says.
            call_number: which optimizer call, or which table.
        """
        entry, function, row_bytes = self._offers[kind, call_number]
        return ServerCall(self.server.device, function, message, entry.reply_bytes, row_bytes)

    @property
    def functions(self) -> list[Any]:
        """The functions of the service, in its order."""
        return [offer.function for offer in self._offers.values()]

    @property
    def service(self) -> Service:
        """These functions as the server lists them."""
        entries = tuple(offer.entry for offer in self._offers.values())
        return Service(self.job_id, self.plan_id, self.runtime.workers, entries)

    def _install(self) -> None:
        hot = min(1, len(self.functions) - 1)  # what every step asks for
        plan = ServedPlan(self.service, tuple(self.functions), hot)
        self.runtime.install(self.server, plan, owner=self)

    def offer(
        self,
        kind: Kind,
        request: RequestTrace,
        *,
        call_number: int = 0,
        request_bytes: int = 0,
        reply_bytes: int = 0,
        row_bytes: int = 0,
    ) -> None:
        """Trace a function and offer it to workers.

        Args:
            kind: of the requests that it answers.
            request: traces it.
            call_number: which optimizer call, or which table.
            request_bytes: of a request's payload.
            reply_bytes: of a reply's payload.
            row_bytes: of rows that may follow, at most: of a push in the request, else in the
                reply.
        """
        function = server_function(
            request.trace, device=self.server.device, signature=Message.signature(REQUEST_FIELDS)
        )
        pushed, found = (row_bytes, 0) if kind == Kind.PUSH else (0, row_bytes)
        entry = Entry(kind, call_number, request_bytes, reply_bytes, row_bytes=pushed)
        self._offers[kind, call_number] = Offer(entry, function, found)

    def offer_push(self, number: int, push: Push) -> None:
        """Offer what answers the pushes of an optimizer call."""
        wire = self.wires[number]
        self.offer(
            Kind.PUSH,
            push,
            call_number=number,
            request_bytes=wire.request.size_bytes,
            reply_bytes=wire.reply.size_bytes,
            row_bytes=sum(size_bytes_of(shard._value) for shard in wire.tables),
        )

    def offer_look_ups(self, reply: Callable[[tf.Tensor, Entries], tf.Tensor]) -> None:
        """Offer rows of tables, with a header that is made from a request's and the ledger."""
        device = self.server.device
        found: dict[int, LookUp] = look_ups(
            self.program.schedule.tables, device=device, ledger=self.server.ledger, reply=reply
        )
        for number, look_up in found.items():
            row_bytes = table_bytes(self.program.schedule.tables[number], device=device)
            self.offer(Kind.LOOK_UP, look_up, call_number=number, row_bytes=row_bytes)

    def offer_rounds(self, *, joins: bool, awaits: bool) -> None:
        """Offer agreement on rounds, where pushes are applied in them.

        Args:
            joins: a worker enters with such a request.
            awaits: a worker may be late for a round, or servers apart.
        """
        if self.rounds is None:
            return
        kinds = [Kind.ENTER_ROUND, Kind.AWAIT_ROUND] if awaits else [Kind.ENTER_ROUND]
        for kind in kinds:
            enters = kind == Kind.ENTER_ROUND
            request = RoundPull(
                self.server,
                rounds=self.rounds,
                plan=self.plan,
                held=self.held,
                enters=enters,
                joins=joins and enters,
            )
            self.offer(kind, request, reply_bytes=self.parameter_layout.size_bytes)

    def offer_slots(self) -> None:
        """Offer what optimizers begin with, where workers run them."""
        if self.program.schedule.local is None:
            return
        self.offer(
            Kind.PULL, self.slot_pull(), call_number=SLOTS, reply_bytes=self.slot_layout.size_bytes
        )

    def slot_pull(self) -> SlotPull:
        """What answers with them."""
        return SlotPull(self.server, plan=self.plan, held=self.slots)

    def optimizer_call(self, number: int, *, position: int, is_last: bool) -> ServerOptimizerCall:
        """What the pushes of an optimizer call change.

        Args:
            number: of the call in the program.
            position: of its pushes in a step.
            is_last: whether a step ends with them.
        """
        kind = ServerOptimizerCall if self.program.schedule.local is None else DeltaCall
        return kind(
            self.wires[number],
            number=position,
            is_last=is_last,
            optimizer=self.program.calls[number].optimizer,
            server=self.server,
            update_of=self.update_of,
        )

    def push_of(
        self,
        call: ServerOptimizerCall,
        admission: AdmissionPolicy,
        *,
        contributions: Callable[[], tuple[Contributions, int]],
        reports: Reports | None = None,
        quotas: Quotas | None = None,
    ) -> Push:
        """What answers a push: in the program's rounds if it has them, else at once.

        Args:
            call: what it changes.
            admission: whose pushes count.
            contributions: to the rounds of the call, and the optimizer call that they are of.
            reports: where the step before is counted; None: not with this push.
            quotas: how many tickets a worker gets next; None: one, or none with this push.
        """
        application: Application = AtOnce(call)
        # A step ends with its last push.
        is_bounded = self.program.schedule.is_bounded and call.is_last
        clock = self.server.gate if is_bounded else OpenGate()
        gate: PushGate = ClockGate(clock, self.server.ledger)
        updates, rounds = self.updates if self.records_pushes else (), self.rounds
        if rounds is not None:
            sums, call_id = contributions()
            self._contributions.append(sums)
            application = IntoRound(sums, weighs_examples=admission.has_keys)
            gate = RoundBarrier(
                rounds,
                sums,
                self.server.ledger,
                number=call.number,
                is_last=call.is_last,
                call_id=call_id,
            )
            updates = ()  # a round's update asks nobody what he knew
        drops = call.is_update and rounds is None
        return Push(
            call=call,
            plan=self.plan,
            terms=Terms(
                admission,
                is_update=call.is_update,
                in_rounds=rounds is not None,
                drop_above=drop_above_of(call.optimizer) if drops else None,
            ),
            application=application,
            gate=gate,
            recorder=PullRecorder(
                updates, natives=call.wire.values.natives, device=self.server.device
            ),
            reports=reports,
            quotas=quotas,
        )
