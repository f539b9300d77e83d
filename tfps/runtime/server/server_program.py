"""A program's functions on one server: join, push, finish, leave."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.pieces import pieces_of, size_bytes_of
from tfps.bridge.server_function import server_function
from tfps.consistency import issuing
from tfps.consistency import ledger as decide
from tfps.consistency.ledger import NO_TICKET, Entries, Status
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.answers import Answers, Handed
from tfps.runtime.message.request_header import SLOTS
from tfps.runtime.message.wire import (
    name_of,
    parameters_on,
    parts_of,
    pieces_on,
    report_layout,
    stage_wire,
)
from tfps.runtime.program.program import Program
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.handing_out import HandingOut
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.server_delta import DeltaStage
from tfps.runtime.server.server_push import Push
from tfps.runtime.server.server_round import RoundPush, RoundRequest
from tfps.runtime.server.server_stage import ServerStage, count_durations
from tfps.runtime.server.server_tables import look_ups, table_bytes
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.message import REQUEST_FIELDS, Kind, Request
from tfps.transport.packing import pack, unpack
from tfps.transport.service import Entry, Service


class ServerProgram:
    """The server's half of a program.

    Args:
        program: what the step touches.
        runtime: the job.
        server: the server whose functions these are.
        update_of: the server-side update of an optimizer.
    """

    def __init__(
        self,
        program: Program,
        *,
        runtime: Runtime,
        server: Server,
        update_of: Callable[[Any], ServerUpdate],
    ) -> None:
        self.program, self.runtime, self.server = program, runtime, server
        self.job_id = runtime.job_id
        self._rounds = server.rounds if program.meets else None
        self._update_of = update_of
        self._held = parts_of(parameters_on(program, server.device))
        self.parameters, self.parameter_layout = self._held.variables, self._held.layout
        self.report_layout = report_layout(program)
        self.wires = [
            stage_wire(program, k, device=server.device, reports=server.hands_out_tickets)
            for k in range(len(program.stages))
        ]
        messages = [(wire.request, wire.reply) for wire in self.wires]
        tables = [[name_of(p) for p in pieces_of(table)] for table in program.tables]
        text = repr((program.name, self.parameter_layout, messages, tables)).encode()
        self.plan_id = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
        self._answers = Answers(runtime.job_id, self.plan_id)
        self._reports = (
            Reports(program, runtime=runtime, server=server) if server.hands_out_tickets else None
        )
        # Servers without tickets take what comes.
        self._quotas = (
            Quotas(server.ledger, adaptive_batches=program.adaptive_batches)
            if program.adaptive_batches > 1 and server.hands_out_tickets
            else None
        )
        self._contributions: list[Contributions] = []  # kept, since servers find them by name
        # What workers update themselves, no server does.
        calls = program.optimizer_calls if program.local is None else ()
        optimizers = {id(call.optimizer): call.optimizer for call in calls}
        self._updates = [update_of(optimizer) for optimizer in optimizers.values()]
        slots = () if program.local is None else program.local.slots
        self._slots = parts_of(pieces_on(slots, server.device))
        self.slots, self.slot_layout = self._slots.variables, self._slots.layout
        self.join = self._function(self._join)
        self.pushes = [self._function(self._push(k).trace) for k in range(len(program.stages))]
        self.enter_round = self._agreement(enters=True)
        # Without backup workers nobody is late, and all servers begin a round together.
        may_differ = bool(runtime.mode.backup_workers) and (
            len(runtime.servers) > 1 or len(program.stages) > 1
        )
        self.await_round = self._agreement(enters=False) if may_differ else None
        self.leave = self._function(self._leave)
        found = look_ups(
            program.tables, device=server.device, ledger=server.ledger, reply=self._found
        )
        self.look_ups = {number: self._function(found[number].trace) for number in found}
        runtime.push_functions.update(self.pushes)

    @functools.cached_property
    def _entries(self) -> list[tuple[Entry, Any]]:
        """Every function that a worker may ask for, with what asks for it."""
        report_bytes = self.report_layout.size_bytes if self.server.hands_out_tickets else 0
        slot_bytes = self.slot_layout.size_bytes
        entries = [(Entry(Kind.JOIN, 0, 0, self.parameter_layout.size_bytes), self.join)]
        for stage, (wire, push) in enumerate(zip(self.wires, self.pushes, strict=True)):
            sizes = wire.request.size_bytes, wire.reply.size_bytes
            rows = sum(size_bytes_of(piece._value) for piece in wire.tables)
            entries.append((Entry(Kind.PUSH, stage, *sizes, row_bytes=rows), push))
        for number, function in self.look_ups.items():
            entries.append((Entry(Kind.LOOK_UP, number, 0, 0), function))
        if self.server.hands_out_tickets and not self.program.trains:
            entries.append((Entry(Kind.FINISH, 0, report_bytes, 0), self.finish))
        held_bytes = self.parameter_layout.size_bytes
        for kind, function in (
            (Kind.ENTER_ROUND, self.enter_round),
            (Kind.AWAIT_ROUND, self.await_round),
        ):
            if function is not None:
                entries.append((Entry(kind, 0, 0, held_bytes), function))
        if self.program.local is not None:
            entries.append((Entry(Kind.PULL, SLOTS, 0, slot_bytes), self.pull_slots))
        entries.append((Entry(Kind.LEAVE, 0, report_bytes, 0), self.leave))
        return entries

    @functools.cached_property
    def _offered(self) -> dict[tuple[int, int], tuple[Entry, Any]]:
        return {(entry.kind, entry.stage): (entry, function) for entry, function in self._entries}

    def offers(self, kind: Kind, stage: int = 0) -> bool:
        """Whether there is a function for such a request."""
        return (kind, stage) in self._offered

    def call(self, kind: Kind, message: Message, *, stage: int = 0) -> ServerCall:
        """A request for one of this server's functions."""
        entry, function = self._offered[kind, stage]
        device, row_bytes = self.server.device, 0
        if kind == Kind.LOOK_UP:
            row_bytes = table_bytes(self.program.tables[stage], device=device)
        return ServerCall(device, function, message, entry.reply_bytes, row_bytes)

    @property
    def functions(self) -> list[Any]:
        """The functions of the service, in its order."""
        return [function for _, function in self._entries]

    @property
    def hot_position(self) -> int:
        """The function that every step asks for: the one after `join`."""
        return 1

    @property
    def service(self) -> Service:
        """These functions as the server lists them."""
        return Service(
            job_id=self.runtime.job_id,
            plan_id=self.plan_id,
            slots=self.runtime.workers,
            entries=tuple(entry for entry, _ in self._entries),
        )

    @functools.cached_property
    def finish(self) -> Any:
        """For programs that train nothing."""
        return self._function(self._finish)

    @functools.cached_property
    def pull_slots(self) -> Any:
        """For programs whose workers run the optimizers."""
        return self._function(self._pull_slots)

    @functools.cached_property
    def _report(self) -> Callable[..., list[np.ndarray[Any, Any]]]:
        assert self._reports is not None
        return self.server.control.function(self._reports.read, arguments=1)

    def report(self, *, reset: bool = False) -> tuple[np.ndarray[Any, Any], ...]:
        """The books, the metric totals and the newest outputs; optionally set back to zero."""
        cells, metrics, outputs = self._report(int(reset))
        return cells, metrics, outputs

    def _function(self, trace: Callable[..., Sequence[tf.Tensor]]) -> Any:
        return server_function(
            trace, device=self.server.device, signature=Message.signature(REQUEST_FIELDS)
        )

    def _push(self, number: int) -> Push | RoundPush:
        is_last = number == len(self.program.stages) - 1
        kind = ServerStage if self.program.local is None else DeltaStage
        stage = kind(
            self.wires[number],
            number=number,
            is_last=is_last,
            optimizer=self.program.stages[number].optimizer,
            server=self.server,
            update_of=self._update_of,
        )
        reports = self._reports if is_last else None
        rounds = self._rounds
        if rounds is None:
            return Push(
                stage,
                pipelined=self.program.pipelined,
                answers=self._answers,
                reports=reports,
                handing_out=self._handing_out(self.wires[number].values.natives),
            )
        contributions = Contributions(stage, runtime=self.runtime, name=self.program.name)
        self._contributions.append(contributions)
        return RoundPush(
            stage,
            rounds=rounds,
            contributions=contributions,
            answers=self._answers,
            reports=reports,
            quotas=self._quotas if reports is not None else None,
        )

    def _agreement(self, *, enters: bool) -> Any:
        """A function for agreeing on a round, where the job has rounds; else None."""
        rounds = self._rounds
        if rounds is None:
            return None
        request = RoundRequest(
            rounds, held=self._held, server=self.server, answers=self._answers, enters=enters
        )
        return self._function(request.trace)

    def _handing_out(self, natives: Sequence[Any]) -> HandingOut:
        return HandingOut(self._updates, natives=natives, device=self.server.device)

    def _found(self, header: tf.Tensor, entries: Entries) -> tf.Tensor:
        """The header of an answer with rows."""
        alive = self._answers.is_alive(header, entries)
        version = entries.read(self.server.ledger.books.VERSION)
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        return self._answers.reply(header, status=status, version=version)

    def _join(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        ledger = self.server.ledger
        slot, incarnation = header[Request.SLOT], header[Request.INCARNATION]
        with ledger.locked():
            entries = ledger.entries()
            newer = tf.logical_and(
                self._answers.is_ours(header),
                incarnation > entries.read(ledger.books.incarnation(slot)),
            )
            decide.dismiss(entries, slot=slot, leaves=newer, closed=tf.constant(False))
            ledger.post(entries)
            entries = ledger.entries()
            accepted = decide.enter(
                entries, slot=slot, incarnation=tf.where(newer, incarnation, -1)
            )
            handed = self._first_ticket(entries, alive=accepted, slot=slot)
            version: Any = entries.read(ledger.books.VERSION)
            entries.count_traffic(received_bytes=0, sent_bytes=self.parameter_layout.size_bytes)
            ledger.post(entries)
            if self.server.hands_out_tickets and self.program.pipelined:
                entries = ledger.entries()
                ahead = issuing.issue(
                    entries, alive=accepted, slot=slot, pushed=NO_TICKET, pipelined=True
                )
                ledger.post(entries)
                handed = replace(handed, ahead=ahead)
            self.server.membership.enter(slot, accepted)
            clock = ledger.entries().read(ledger.books.clock(slot))
            if self._rounds is not None:
                version = self._rounds.position()
            values = self._values(self._held.natives)
            handing_out = self._handing_out(self._held.natives)
            handing_out.note(WorkerAt(slot, version), counts=accepted, is_first=True)
        status = tf.where(accepted, int(Status.OK), int(Status.EVICTED))
        reply = self._answers.reply(
            header,
            status=status,
            version=version,
            handed=handed,
            clock=clock,
        )
        return [reply, ids, pack(self._held.server_layout, values)]

    def _first_ticket(self, entries: Entries, *, alive: tf.Tensor, slot: tf.Tensor) -> Handed:
        """What a worker that joins begins with."""
        if not self.server.hands_out_tickets:
            return Handed()
        if self._quotas is None:
            return Handed(issuing.issue(entries, alive=alive, slot=slot, pushed=NO_TICKET))
        quota = self._quotas.known(slot)
        several = issuing.issue_several(
            entries, alive=alive, slot=slot, pushed=NO_TICKET, quota=quota
        )
        return Handed(*several)

    def _finish(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """An evaluation step is done: count its report, hand out the next ticket."""
        assert self._reports is not None  # only the ticket server is asked
        ledger, slot = self.server.ledger, header[Request.SLOT]
        report = unpack(self.report_layout, payload)
        with ledger.locked():
            entries = ledger.entries()
            alive = tf.logical_and(
                self._answers.is_ours(header), entries.is_alive(slot, header[Request.INCARNATION])
            )
            done = decide.finish(entries, alive=alive, slot=slot, ticket=header[Request.TICKET])
            self._reports.count(done, report)
            ticket = issuing.issue(entries, alive=alive, slot=slot, pushed=NO_TICKET)
            version = entries.read(ledger.books.VERSION)
            ledger.post(entries)
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        reply = self._answers.reply(header, status=status, version=version, handed=Handed(ticket))
        return [reply, ids, tf.zeros([0], tf.uint8)]

    def _leave(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        ledger, slot = self.server.ledger, header[Request.SLOT]
        with ledger.locked():
            entries = ledger.entries()
            alive = tf.logical_and(
                self._answers.is_ours(header), entries.is_alive(slot, header[Request.INCARNATION])
            )
            closed = tf.constant(False)
            if self._reports is not None:
                report = unpack(self.report_layout, payload)
                closed = self._reports.close(entries, alive, header, report)
            decide.dismiss(entries, slot=slot, leaves=alive, closed=closed)
            count_durations(self.server, entries, header)
            version = entries.read(ledger.books.VERSION)
            ledger.post(entries)
            self.server.membership.leave(slot, alive)
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        reply = self._answers.reply(header, status=status, version=version)
        return [reply, ids, tf.zeros([0], tf.uint8)]

    def _pull_slots(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """What the slots of a worker begin with."""
        with self.server.ledger.locked():
            values = self._values(self._slots.natives)
        reply = self._answers.reply(header, status=tf.constant(int(Status.OK), tf.int64), version=0)
        return [reply, ids, pack(self._slots.server_layout, values)]

    def _values(self, natives: Sequence[Any]) -> dict[str, tf.Tensor]:
        return {native.shared_name: native.read_value() for native in natives}
