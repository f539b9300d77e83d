"""A program's functions on one server: join, push, finish, leave; admit, apply, reply."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import ServerVariable
from tfps.consistency import ledger as decide
from tfps.consistency.gate import Gate, OpenGate
from tfps.consistency.ledger import NO_TICKET, Entries, Status
from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.wrapped import drop_above_of
from tfps.runtime import bookkeeping
from tfps.runtime.bookkeeping import Pushed, Turn
from tfps.runtime.program import Program
from tfps.runtime.runtime import Runtime
from tfps.runtime.server import Server
from tfps.runtime.server_function import server_function
from tfps.runtime.wire import (
    METRICS,
    OUTPUTS,
    gradient_of,
    name_of,
    parameters_on,
    parts_of,
    report_layout,
    stage_wire,
)
from tfps.transport.carrier import Message
from tfps.transport.message import PROTOCOL, REQUEST_FIELDS, Kind, Reply, Request
from tfps.transport.packing import pack, unpack
from tfps.transport.service import Entry, Service

# The books' histograms of durations; the first three lie in a request's header in this order.
PUSH, PULL, WAIT, UPDATE = range(4)


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
        self._update_of = update_of
        self._held = parts_of(parameters_on(program, server.device))
        self.parameters, self.parameter_layout = self._held.variables, self._held.layout
        self.report_layout = report_layout(program)
        self.wires = [
            stage_wire(program, k, device=server.device, reports=server.hands_out_tickets)
            for k in range(len(program.stages))
        ]
        messages = [(wire.request, wire.reply) for wire in self.wires]
        text = repr((program.name, self.parameter_layout, messages)).encode()
        self.plan_id = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")
        if server.hands_out_tickets:
            self._metrics = self._vector("metrics", program.metric_items)
            self._outputs = self._vector("outputs", program.output_items)
        self.join = self._function(self._join)
        self.pushes = [self._function(self._push_of(k)) for k in range(len(program.stages))]
        self.leave = self._function(self._leave)
        runtime.push_functions.update(self.pushes)

    @functools.cached_property
    def _entries(self) -> list[tuple[Entry, Any]]:
        """Every function that a worker may ask for, with what asks for it."""
        report_bytes = self.report_layout.size_bytes if self.server.hands_out_tickets else 0
        entries = [(Entry(Kind.JOIN, 0, 0, self.parameter_layout.size_bytes), self.join)]
        for stage, (wire, push) in enumerate(zip(self.wires, self.pushes, strict=True)):
            sizes = wire.request.size_bytes, wire.reply.size_bytes
            entries.append((Entry(Kind.PUSH, stage, *sizes), push))
        if self.server.hands_out_tickets and not self.program.trains:
            entries.append((Entry(Kind.FINISH, 0, report_bytes, 0), self.finish))
        entries.append((Entry(Kind.LEAVE, 0, report_bytes, 0), self.leave))
        return entries

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
    def _report(self) -> Callable[..., list[np.ndarray[Any, Any]]]:
        return self.server.control.function(self._trace_report, arguments=1)

    def report(self, *, reset: bool = False) -> tuple[np.ndarray[Any, Any], ...]:
        """The books, the metric totals and the newest outputs; optionally set back to zero."""
        cells, metrics, outputs = self._report(int(reset))
        return cells, metrics, outputs

    def _vector(self, name: str, items: int) -> ServerVariable:
        return self.runtime.create_variable(
            np.zeros([items], np.float64),
            device=self.server.device,
            planned=False,
            trainable=False,
            name=f"{self.program.name}_{name}",
        )

    def _function(self, trace: Callable[..., Sequence[tf.Tensor]]) -> Any:
        return server_function(
            trace, device=self.server.device, signature=Message.signature(REQUEST_FIELDS)
        )

    def _is_ours(self, header: tf.Tensor) -> tf.Tensor:
        expected = tf.constant([PROTOCOL, self.runtime.job_id, self.plan_id], tf.int64)
        return tf.reduce_all(tf.equal(header[: Request.PLAN + 1], expected))

    def _reply(
        self,
        header: tf.Tensor,
        *,
        status: Any,
        version: Any,
        staleness: Any = 0,
        ticket: Any = NO_TICKET,
        ahead: Any = NO_TICKET,
    ) -> tf.Tensor:
        fields = {
            Reply.STATUS: tf.where(
                self._is_ours(header), tf.cast(status, tf.int64), int(Status.REPLAN)
            ),
            Reply.VERSION: version,
            Reply.STALENESS: staleness,
            Reply.NEXT_TICKET: ticket,
            Reply.AHEAD_TICKET: ahead,
        }
        return tf.stack([tf.cast(fields[field], tf.int64) for field in Reply])

    def _join(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        ledger = self.server.ledger
        slot, incarnation = header[Request.SLOT], header[Request.INCARNATION]
        with ledger.locked():
            entries = ledger.entries()
            newer = tf.logical_and(
                self._is_ours(header), incarnation > entries.read(ledger.books.incarnation(slot))
            )
            decide.dismiss(entries, slot=slot, leaves=newer, closed=tf.constant(False))
            ledger.post(entries)
            entries = ledger.entries()
            accepted = decide.enter(
                entries, slot=slot, incarnation=tf.where(newer, incarnation, -1)
            )
            ticket: Any = NO_TICKET
            if self.server.hands_out_tickets:
                ticket = decide.issue(entries, alive=accepted, slot=slot, pushed=NO_TICKET)
            version = entries.read(ledger.books.VERSION)
            entries.count_traffic(received_bytes=0, sent_bytes=self.parameter_layout.size_bytes)
            ledger.post(entries)
            ahead: Any = NO_TICKET
            if self.server.hands_out_tickets and self.program.pipelined:
                entries = ledger.entries()
                ahead = decide.issue(
                    entries, alive=accepted, slot=slot, pushed=NO_TICKET, pipelined=True
                )
                ledger.post(entries)
            self.server.gate.enter(slot, accepted)
            values = self._values(self._held.natives)
        status = tf.where(accepted, int(Status.OK), int(Status.EVICTED))
        reply = self._reply(header, status=status, version=version, ticket=ticket, ahead=ahead)
        return [reply, ids, pack(self._held.server_layout, values)]

    def _push_of(self, stage: int) -> Callable[..., Sequence[tf.Tensor]]:
        wire = self.wires[stage]
        is_last = stage == len(self.program.stages) - 1
        reports = is_last and self.server.hands_out_tickets
        optimizer = self.program.stages[stage].optimizer
        turn = Turn(
            stage=stage,
            is_update=optimizer is not None,
            hands_out=reports,
            received_bytes=wire.request.size_bytes,
            sent_bytes=wire.reply.size_bytes,
            pipelined=self.program.pipelined,
            drop_above=None if optimizer is None else drop_above_of(optimizer),
        )
        gate: Gate = self.server.gate if is_last else OpenGate()  # a step ends with its last push

        def read_again() -> list[tf.Tensor]:
            ledger = self.server.ledger
            version = ledger.entries().read(ledger.books.VERSION)
            return [version, *self._values(wire.values.natives).values()]

        def push(header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
            ledger, tensors = self.server.ledger, unpack(wire.server_request, payload)
            fields = tf.unstack(header)
            cell = ledger.window_cell(fields[Request.TICKET])
            with ledger.locked():
                entries = ledger.entries()
                pushed = bookkeeping.push(
                    entries,
                    header=fields,
                    slot=entries.account(fields[Request.SLOT]),
                    is_ours=self._is_ours(header),
                    turn=turn,
                    applied_key=ledger.applied_key(cell),
                )
                if is_last:
                    self._count_durations(entries, header)
                done = self._timed(
                    pushed.fresh,
                    lambda: self._apply(stage, tensors, pushed),
                    counts=optimizer is not None,
                )
                # The books say that it was applied when it was, and not if that failed.
                remembered = ledger.remember(cell=cell, key=pushed.remembered)
                for operation in (remembered, *ledger.post(entries)):
                    private.run_after(operation, done.op)
                if reports:
                    self._count_report(pushed.closed, tensors)
                has_to_wait = gate.end_step(fields[Request.SLOT], pushed.alive)
                values = self._values(wire.values.natives)
            version = pushed.version
            if has_to_wait is not None:
                version, *parts = tf.cond(
                    has_to_wait,
                    lambda: gate.wait(fields[Request.SLOT], read_again),
                    lambda: [version, *values.values()],
                )
                values = dict(zip(values, parts, strict=True))
            reply = self._reply(
                header,
                status=pushed.status,
                version=version,
                staleness=pushed.staleness,
                ticket=pushed.next_ticket,
            )
            return [reply, ids, pack(wire.server_reply, values)]

        return push

    def _finish(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """An evaluation step is done: count its report, hand out the next ticket."""
        ledger, slot = self.server.ledger, header[Request.SLOT]
        report = unpack(self.report_layout, payload)
        with ledger.locked():
            entries = ledger.entries()
            alive = tf.logical_and(
                self._is_ours(header), entries.is_alive(slot, header[Request.INCARNATION])
            )
            done = decide.finish(entries, alive=alive, slot=slot, ticket=header[Request.TICKET])
            self._count_report(done, report)
            ticket = decide.issue(entries, alive=alive, slot=slot, pushed=NO_TICKET)
            version = entries.read(ledger.books.VERSION)
            ledger.post(entries)
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        reply = self._reply(header, status=status, version=version, ticket=ticket)
        return [reply, ids, tf.zeros([0], tf.uint8)]

    def _leave(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        ledger, slot = self.server.ledger, header[Request.SLOT]
        with ledger.locked():
            entries = ledger.entries()
            alive = tf.logical_and(
                self._is_ours(header), entries.is_alive(slot, header[Request.INCARNATION])
            )
            closed = tf.constant(False)
            if self.server.hands_out_tickets:
                report = unpack(self.report_layout, payload)
                closed = self._close(entries, alive, header, report)
            decide.dismiss(entries, slot=slot, leaves=alive, closed=closed)
            self._count_durations(entries, header)
            version = entries.read(ledger.books.VERSION)
            ledger.post(entries)
            self.server.gate.leave()
        status = tf.where(alive, int(Status.OK), int(Status.EVICTED))
        reply = self._reply(header, status=status, version=version)
        return [reply, ids, tf.zeros([0], tf.uint8)]

    def _close(
        self, entries: Entries, alive: tf.Tensor, header: tf.Tensor, tensors: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        closed = decide.close(
            entries,
            alive=alive,
            slot=header[Request.SLOT],
            ticket=header[Request.CLOSES],
            examples=header[Request.EXAMPLES],
        )
        self._count_report(closed, tensors)
        return closed

    def _count_report(self, counts: tf.Tensor, tensors: dict[str, tf.Tensor]) -> None:
        """Take a step's metric state into the totals, once per ticket."""
        if self.program.metric_items:
            total = self._metrics.read_value()
            combined = self.program.totals.combine(total, tensors[METRICS])
            self._metrics.assign(tf.where(counts, combined, total), read_value=False)
        if self.program.output_items:
            newest = self._outputs.read_value()
            self._outputs.assign(tf.where(counts, tensors[OUTPUTS], newest))

    def _count_durations(self, entries: Entries, header: tf.Tensor) -> None:
        measured = header[Request.PUSH_MICROSECONDS : Request.WAIT_MICROSECONDS + 1]
        self.server.ledger.count_durations(entries, PUSH, measured)

    def _timed(
        self, condition: tf.Tensor, work: Callable[[], tf.Tensor], *, counts: bool
    ) -> tf.Tensor:
        """Do the work if the condition holds, and count its duration; answers when it is done."""

        def timed() -> tf.Tensor:
            begin = tf.timestamp()
            with tf.control_dependencies([begin]):
                done = work()
            with tf.control_dependencies([done]):
                self.server.ledger.count_seconds(UPDATE, tf.timestamp() - begin)
            return tf.constant(0)

        return tf.cond(condition, timed if counts else work, lambda: tf.constant(0))

    def _apply(self, stage: int, tensors: dict[str, tf.Tensor], pushed: Pushed) -> tf.Tensor:
        wire = self.wires[stage]
        before = tf.compat.v1.get_default_graph().get_operations()
        for variable in wire.state:
            self._take_state(variable, tensors[name_of(variable)], pushed.active)
        optimizer = self.program.stages[stage].optimizer
        if optimizer is not None:
            gradients = {n.shared_name: tensors[gradient_of(n)] for n in wire.gradients.natives}
            if any(v._value.device == self.server.device for v in optimizer._trainable_variables):
                self._update_of(optimizer).apply(
                    gradients, device=self.server.device, staleness=pushed.staleness
                )
        done = [
            operation
            for operation in tf.compat.v1.get_default_graph().get_operations()[len(before) :]
            if operation.op_def.is_stateful and operation.type != "VarHandleOp"
        ]
        with tf.control_dependencies(done):
            return tf.constant(0)

    def _take_state(self, variable: Any, new: tf.Tensor, active: tf.Tensor) -> None:
        """Moving averages of several workers mix; adding their changes made variances negative."""
        value = variable._value
        if value.dtype.is_floating:
            old = value.read_value()
            mixed = old + (new - old) / tf.cast(tf.maximum(active, 1), value.dtype)
            value.assign(tf.where(active <= 1, new, mixed), read_value=False)
        elif value.dtype.is_integer:
            value.assign_add(new, read_value=False)  # a count: the worker sends its increase
        else:
            value.assign(new, read_value=False)

    def _values(self, natives: Sequence[Any]) -> dict[str, tf.Tensor]:
        return {native.shared_name: native.read_value() for native in natives}

    def _trace_report(self, reset: tf.Tensor) -> list[tf.Tensor]:
        with self.server.ledger.locked():
            cells = self.server.ledger.cells()
            metrics = tf.identity(self._metrics.read_value())
            outputs = tf.identity(self._outputs.read_value())
            with tf.control_dependencies([metrics]):
                kept = tf.where(reset > 0, tf.constant(self.program.totals.empty), metrics)
                self._metrics.assign(kept, read_value=False)
        return [cells, metrics, outputs]
