"""Defines the server's functions for a program of `fit`, whose steps follow tickets."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.consistency import issuing
from tfps.consistency import ledger as decide
from tfps.consistency.ledger import NO_TICKET, Ledger
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import ReplyHeader
from tfps.runtime.message.request_header import TOTALS, UNCHANGED
from tfps.runtime.message.wire import (
    CallWire,
    ServerShards,
    build_call_wire,
    build_report_layout,
    get_shards_on,
    group_by_slab,
)
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import AdmitByTicket, close_acked
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.push import Push
from tfps.runtime.server.reports import NO_RESET, Reports
from tfps.runtime.server.requests import enter_if_new, pack_values, read_values
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall, count_durations
from tfps.runtime.server.update_counts import UpdateCounts
from tfps.transport.message import Kind, Request
from tfps.transport.packing import pack, unpack

Array = np.ndarray[Any, Any]
RESET_BITS = 62  # the size of a random number that fits into int64


class FitHalf(ServerHalf):
    """Functions for a worker to join, push by ticket, and leave; server 0 issues tickets."""

    each_call_ends_step = False

    def __init__(
        self, program: Program, *, runtime: Runtime, server: Server, **options: Any
    ) -> None:
        self.report_layout = build_report_layout(program)
        if server.issues_tickets:
            self.reports = Reports(program, runtime=runtime, server=server)
        self._moving = program.changing_variables
        moving = {id(variable) for variable in self._moving}
        unchanged = (
            [v for v in program.variables if id(v) not in moving]
            if program.changes_variables
            else []
        )
        self.unchanged = group_by_slab(get_shards_on(unchanged, server.device))
        self.unchanged_layout = self.unchanged.layout
        mirrored = program.schedule.mirrored
        self.is_grouped = mirrored is not None and server.issues_tickets
        if mirrored is not None and not server.issues_tickets:
            self.update_counts = UpdateCounts(mirrored.counts, ledger=server.ledger)
        stored = () if mirrored is None else (*mirrored.weights, *mirrored.slots)
        # The weights that workers train, and their slots, which one of them writes at its end.
        self.home = group_by_slab(get_shards_on(stored, server.device))
        super().__init__(program, runtime=runtime, server=server, **options)

    def build_wire(self, number: int) -> CallWire:
        program, returned = self.program, self._moving
        if number < len(program.calls) - 1:
            # Other state that the step assigns travels with the last call, and comes back with it.
            call, assigned = program.calls[number], {id(v) for v in program.state}
            assigned -= {id(variable) for variable in call.variables}
            returned = [v for v in program.get_changed_variables(call) if id(v) not in assigned]
        return build_call_wire(
            program,
            number,
            device=self.server.device,
            reports=self.reports is not None,
            returned=returned,
        )

    @property
    def awaited_values(self) -> ServerShards:
        return self.wires[-1].values

    def offer_all(self) -> None:
        report_bytes = self._report_bytes
        join = (
            self._trace_join if self.is_grouped else self.trace_locked(self._join, held=self.held)
        )
        self.offer(Kind.JOIN, join, reply_bytes=self.parameter_layout.size_bytes)
        self.offer_pushes()
        self.runtime.push_functions.update(
            self._offers[Kind.PUSH, number].function for number in range(len(self.wires))
        )
        self.offer_look_ups()
        if self.reports is not None and self.program.is_sequential and self.program.metric_items:
            size = self.report_layout.size_bytes
            self.offer(Kind.PULL, self._pull_totals, call_number=TOTALS, reply_bytes=size)
        if self.reports is not None and not self.program.changes_variables:
            self.offer(Kind.FINISH, self.trace_locked(self._finish), request_bytes=report_bytes)
        # Without backup workers no worker is late, and all servers begin a round together.
        apart = len(self.runtime.servers) > 1 or len(self.wires) > 1
        mirrored = self.program.schedule.mirrored
        awaits = (bool(self.runtime.mode.backup_workers) and apart) or mirrored is not None
        self.offer_rounds(joins=False, awaits=awaits)
        self.offer_slots()
        if mirrored is not None:
            size = self.home.layout.size_bytes
            self.offer(Kind.WRITE_BACK, self.trace_locked(self._write_home), request_bytes=size)
        if self.unchanged.variables:
            pull, size = (
                self.trace_locked(self._pull_unchanged, held=self.unchanged),
                self.unchanged_layout.size_bytes,
            )
            self.offer(Kind.PULL, pull, call_number=UNCHANGED, reply_bytes=size)
        self.offer(Kind.LEAVE, self.trace_locked(self._leave), request_bytes=report_bytes)

    def get_admission(self, number: int) -> AdmitByTicket:
        issues_tickets = self.reports is not None and number == len(self.wires) - 1
        return AdmitByTicket(number, issues_tickets)

    def create_contributions(
        self, call: ServerOptimizerCall, number: int
    ) -> tuple[Contributions, int]:
        admission = self.get_admission(number) if self.is_grouped else None
        return Contributions(call, runtime=self.runtime, admission=admission), 1

    def make_row_reply(self, header: Sequence[tf.Tensor], ledger: Ledger) -> ReplyHeader:
        alive = self.plan.is_alive(header, ledger, header[Request.WORKER])
        status = self.plan.compute_status(header, alive=alive)
        return ReplyHeader(ledger.read(ledger.layout.VERSION), status)

    def _trace_join(
        self, header: Sequence[tf.Tensor], ids: tf.Tensor, payload: tf.Tensor
    ) -> list[tf.Tensor]:
        """Trace a join; the ids of the reply are generation, and whether the ticket repeats."""
        server_ledger = self.server.ledger
        with server_ledger.locked():
            reply = self._join(header, payload)
            generation = server_ledger.read(server_ledger.layout.GENERATION)
            repeats = Push.make_repeat_ids(server_ledger, reply.next_ticket)
            values = read_values(self.held)
        reply_ids = tf.concat([generation[None], repeats], 0)
        return [reply.to_tensor(), reply_ids, pack_values(self.held, values)]

    def _write_home(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """Write the mirrored weights and their slots, as a worker at its end has them."""
        server_ledger = self.server.ledger
        ledger = server_ledger.open()
        alive = self.plan.is_alive(header, ledger, header[Request.WORKER])
        layout = self.home.server_layout
        if self.update_counts is not None:
            self.update_counts.set(header[Request.UPDATES], condition=alive)

        def write() -> tf.Tensor:
            values = unpack(layout, payload)
            for native in self.home.natives:
                native.assign(values[native.shared_name], read_value=False)
            return tf.constant(0)

        tf.cond(alive, write, lambda: tf.constant(0))
        if self.is_grouped:
            ledger.write_if(alive, ledger.layout.HOME, ledger.read(ledger.layout.REDUCED))
        ledger.count_traffic(received_bytes=layout.size_bytes, sent_bytes=0)
        server_ledger.write_changes(ledger)
        version = ledger.read(ledger.layout.VERSION)
        return ReplyHeader(version, self.plan.compute_status(header, alive=alive))

    def _join(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """Let a worker join a ticket run; reply with parameters and its first ticket."""
        worker, server_ledger, ticket = header[Request.WORKER], self.server.ledger, NO_TICKET
        accepted = enter_if_new(self.server, self.plan, header, is_grouped=self.is_grouped)
        if self.is_grouped and self.rounds is not None:
            for contributions in self.contributions:
                contributions.forget_dropped(self.rounds.position())
        ledger = server_ledger.open()
        version = ledger.read(server_ledger.layout.VERSION)
        clock = ledger.read(server_ledger.layout.clock(worker))
        if self.server.issues_tickets:
            ticket = issuing.issue(ledger, alive=accepted, worker=worker, pushed=NO_TICKET)
        ledger.count_traffic(received_bytes=0, sent_bytes=self.parameter_layout.size_bytes)
        server_ledger.write_changes(ledger)
        if self.rounds is not None:
            version = self.rounds.position()
        self.delta_encoder.record_full_values(header, version, counts=accepted)
        status = self.plan.compute_status(header, alive=accepted)
        number = self.trace_unchanged_number()
        return ReplyHeader(version, status, next_ticket=ticket, clock=clock, other_writes=number)

    def _pull_unchanged(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """Reply with the values that no step changes, after another program has written them."""
        ledger = self.server.ledger.count_exchange(self.unchanged_layout.size_bytes)
        alive = self.plan.is_alive(header, ledger, header[Request.WORKER])
        version, status = (
            ledger.read(ledger.layout.VERSION),
            self.plan.compute_status(header, alive=alive),
        )
        return ReplyHeader(version, status, other_writes=self.trace_unchanged_number())

    def _pull_totals(
        self, header: Sequence[tf.Tensor], ids: tf.Tensor, payload: tf.Tensor
    ) -> list[tf.Tensor]:
        """Reply with the metric totals so far, for a worker that continues from them."""
        assert self.reports is not None
        with self.server.ledger.locked():
            ledger = self.server.ledger.count_exchange(self.report_layout.size_bytes)
            alive = self.plan.is_alive(header, ledger, header[Request.WORKER])
            status = self.plan.compute_status(header, alive=alive)
            reply = ReplyHeader(ledger.read(ledger.layout.VERSION), status)
            totals = {
                name: tf.identity(value) for name, value in self.reports.trace_latest().items()
            }
        return [reply.to_tensor(), ids, pack(self.report_layout, totals)]

    def trace_unchanged_number(self) -> tf.Tensor | int:
        """Trace the number of writes by other programs."""
        ledger = self.server.ledger
        return ledger.read(ledger.layout.OTHER_WRITES) if self.unchanged.variables else 0

    def _finish(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """End an evaluation step: count its report, and issue the next ticket."""
        worker, server_ledger = header[Request.WORKER], self.server.ledger
        ledger = server_ledger.open()
        alive = self.plan.is_alive(header, ledger, worker)
        done = decide.finish(ledger, alive=alive, worker=worker, ticket=header[Request.TICKET])
        self._count_report(done, payload)
        ticket = issuing.issue(ledger, alive=alive, worker=worker, pushed=NO_TICKET)
        version = ledger.read(server_ledger.layout.VERSION)
        ledger.count_traffic(received_bytes=self.report_layout.size_bytes, sent_bytes=0)
        server_ledger.write_changes(ledger)
        status = self.plan.compute_status(header, alive=alive)
        return ReplyHeader(version, status, next_ticket=ticket)

    def _leave(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """End a worker's ticket run: close its last ticket."""
        worker, server_ledger = header[Request.WORKER], self.server.ledger
        ledger = server_ledger.open()
        alive = self.plan.is_alive(header, ledger, worker)
        closed = tf.constant(False)
        if self.reports is not None:
            closed = close_acked(ledger, header, alive=alive, worker=worker)
            self._count_report(closed, payload)
        ledger.count_traffic(received_bytes=self._report_bytes, sent_bytes=0)
        decide.remove(ledger, worker=worker, leaves=alive, closed=closed)
        count_durations(self.server, ledger, header)
        version = ledger.read(server_ledger.layout.VERSION)
        server_ledger.write_changes(ledger)
        self.server.membership.leave(worker, alive)
        return ReplyHeader(version, self.plan.compute_status(header, alive=alive))

    @property
    def _report_bytes(self) -> int:
        """Return the size of the payload of a request that brings only a report.

        A Python int: with a tensor here, TensorFlow's graph optimization breaks the graph ("output
        0 of type float does not match").
        """
        return 0 if self.reports is None else int(self.report_layout.size_bytes)

    def _count_report(self, counts: tf.Tensor, payload: tf.Tensor) -> None:
        assert self.reports is not None
        self.reports.count(counts, unpack(self.report_layout, payload))

    def count_updates(self, updates: int) -> None:
        """Set the counts of optimizers on a server that has another number of updates."""

        def count(number: tf.Tensor) -> list[tf.Tensor]:
            assert self.update_counts is not None
            with self.server.ledger.locked():
                self.update_counts.set(number)
            return [number]

        arguments = [tf.TensorSpec([], tf.int64)]
        self.server.open_channel_for(self).make_function(count, arguments=arguments)(updates)

    @functools.cached_property
    def _trace_report(self) -> Callable[..., list[Array]]:
        assert self.reports is not None
        arguments = [tf.TensorSpec([], tf.int64), tf.TensorSpec([None], tf.float64)]
        return self.server.open_channel_for(self).make_function(
            self.reports.read, arguments=arguments
        )

    def read_report(self, *, reset_to: Array | None = None) -> tuple[Array, ...]:
        """Return the ledger, metric totals and newest outputs; optionally reset the totals."""
        number, initial = NO_RESET, np.zeros(0)
        if reset_to is not None:
            number, initial = secrets.randbits(RESET_BITS) | 1, reset_to
        cells, metrics, outputs = self._trace_report(number, initial)
        return cells, metrics, outputs
