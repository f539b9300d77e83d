"""Defines the functions of a program on one server, by kind of request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.shards import get_shards, get_size_bytes
from tfps.consistency.gate import OpenGate
from tfps.consistency.ledger import Ledger
from tfps.consistency.round_gate import RoundGate
from tfps.optimizers.optimizer_call import collect_optimizers
from tfps.optimizers.wrapped import get_drop_above
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.coding import choose_codecs
from tfps.runtime.message.reply_header import ReplyHeader
from tfps.runtime.message.request_header import SLOTS
from tfps.runtime.message.row_format import RowFormat, choose_row_formats
from tfps.runtime.message.row_indices import decode_row_indices
from tfps.runtime.message.wire import (
    CallWire,
    ServerShards,
    get_shards_on,
    get_variable_name,
    group_by_slab,
)
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import AdmitAll, PushTerms
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.delta_encoder import DeltaEncoder
from tfps.runtime.server.plan_functions import NO_VALUES, PlanFunctions
from tfps.runtime.server.push import Push
from tfps.runtime.server.push_gate import ClockGate, PushGate, RoundBarrier
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.round_pull import RoundPull
from tfps.runtime.server.server_optimizer_call import (
    Application,
    DeltaCall,
    ServerOptimizerCall,
    Update,
)
from tfps.runtime.server.server_tables import ID_BYTES, read_encoded_rows
from tfps.runtime.server.update_counts import UpdateCounts
from tfps.transport.message import Kind, Request


class ServerHalf(PlanFunctions):
    """The functions of a program on one server; they exist as long as this object."""

    reports: Reports | None = None  # counts steps; None: another server does
    unchanged: ServerShards = NO_VALUES  # values that pushes do not change and replies do not bring
    is_grouped = False  # whether workers add up gradients in a group that this server decides
    update_counts: UpdateCounts | None = None  # if another server decides about such a group
    each_call_ends_step: bool  # whether each optimizer call is a step, or a round, of its own

    def __init__(
        self,
        program: Program,
        *,
        runtime: Runtime,
        server: Server,
        get_update: Callable[[Any], Any],
    ) -> None:
        super().__init__(runtime=runtime, server=server)
        self.program = program
        # The rounds in which pushes are applied.
        self.rounds: RoundGate | None = server.rounds if program.schedule.in_rounds else None
        self.get_update: Callable[[Any], Update] = get_update
        # A server has no updates of optimizers that workers run.
        calls = program.optimizer_calls if program.schedule.local is None else ()
        updates = [self.get_update(optimizer) for optimizer in collect_optimizers(calls)]
        # Whether requests have to name the worker that sends them.
        self.depends_on_sender = any(update.depends_on_sender for update in updates)
        self.held = group_by_slab(get_shards_on(self.initial_variables, server.device))
        self.parameter_layout = self.held.layout
        # Variables of optimizers that workers run.
        slots = program.schedule.worker_slots
        self.slots = group_by_slab(get_shards_on(slots, server.device))
        self.slot_layout = self.slots.layout
        self.wires = [self.build_wire(number) for number in range(len(program.calls))]
        self.delta_encoder = DeltaEncoder(self.wires, runtime=runtime, server=server)
        messages = [(wire.request, wire.reply) for wire in self.wires]
        tables = [
            [get_variable_name(p) for p in get_shards(table)] for table in program.schedule.tables
        ]
        self.set_plan_id(self.parameter_layout, messages, tables)
        self.contributions: list[Contributions] = []  # kept, since servers find them by name
        self.pushes = [self.build_push(number) for number in range(len(self.wires))]
        self.offer_all()
        self.install()

    @property
    def initial_variables(self) -> Sequence[Any]:
        """The variables whose values a worker gets before its first step."""
        return self.program.variables

    @property
    def awaited_values(self) -> ServerShards:
        """The values that a worker gets after it has waited for a round."""
        return self.held

    def trace_unchanged_number(self) -> tf.Tensor | int:
        """Trace the version number of `unchanged` values, or 0 without any, under the mutex."""
        raise NotImplementedError

    def build_wire(self, number: int) -> CallWire:
        """Return the message formats of an optimizer call."""
        raise NotImplementedError

    def offer_all(self) -> None:
        """Trace the functions: first the one that a worker begins with, then those of pushes."""
        raise NotImplementedError

    def get_admission(self, number: int) -> AdmitAll:
        """Return the rule by which pushes of an optimizer call are admitted."""
        raise NotImplementedError

    def create_contributions(
        self, call: ServerOptimizerCall, number: int
    ) -> tuple[Contributions, int]:
        """Return the sums for the rounds of an optimizer call, and the id of the call."""
        raise NotImplementedError

    def make_row_reply(self, header: Sequence[tf.Tensor], ledger: Ledger) -> ReplyHeader:
        """Return the header of a reply with rows of a table."""
        raise NotImplementedError

    def offer_pushes(self) -> None:
        """Offer the function that replies to pushes, for each optimizer call."""
        for number, wire in enumerate(self.wires):
            self.offer(
                Kind.PUSH,
                self.pushes[number].trace,
                call_number=number,
                request_bytes=wire.request.size_bytes,
                reply_bytes=wire.reply.size_bytes,
                bytes_behind=sum(get_size_bytes(shard._value) for shard in wire.tables),
            )

    def offer_look_ups(self) -> None:
        """Offer look-ups, each of which returns rows of all tables."""
        if shards := self.look_up_shards():
            look_up = functools.partial(self._look_up, shards, self.look_up_formats())
            row_bytes = sum(get_size_bytes(shard._value) for shard in shards)
            self.offer(Kind.LOOK_UP, look_up, bytes_behind=row_bytes)

    def look_up_shards(self) -> tuple[Any, ...]:
        """Return this server's shards of tables, which look-ups read."""
        return get_shards_on(self.program.schedule.tables, self.server.device)

    def look_up_formats(self) -> tuple[RowFormat, ...]:
        """Return the formats in which rows of these shards travel to workers."""
        schedule = self.program.schedule
        return choose_row_formats(
            self.look_up_shards(), choose_codecs(schedule.tables, schedule.pull)
        )

    def get_max_row_bytes(self) -> int | None:
        """Return the largest size of the rows in one look-up's reply; None if all rows fit."""
        longest = self.runtime.data_plane.get_max_row_bytes(self.server.index)
        formats = self.look_up_formats()
        all_bytes = sum(each.size_bytes * each.native.shape[0] for each in formats)
        return None if longest is None or all_bytes <= longest else longest

    def _look_up(
        self,
        shards: Sequence[Any],
        formats: Sequence[RowFormat],
        header: Sequence[tf.Tensor],
        ids: tf.Tensor,
        payload: tf.Tensor,
    ) -> list[tf.Tensor]:
        server_ledger, row_indices = self.server.ledger, decode_row_indices(shards, ids)
        parts = [
            part
            for each, of_shard in zip(formats, row_indices, strict=True)
            for part in each.measure_sizes(tf.size(of_shard, tf.int64))
        ]
        with server_ledger.locked():
            ledger = server_ledger.open()
            reply = self.make_row_reply(header, ledger)
            seed = tf.stack([tf.constant(self.server.index, tf.int64), reply.version])
            rows = read_encoded_rows(shards, formats, row_indices, seed=seed)
            ledger.count(ledger.layout.EXCHANGES)
            ledger.count_traffic(
                received_bytes=ID_BYTES * tf.size(ids, tf.int64),
                sent_bytes=tf.size(rows, tf.int64),
                coded=self.server.coded_groups.assign_numbers("down", parts),
            )
            server_ledger.write_changes(ledger)
        return [reply.to_tensor(), ids[:0], rows]

    def offer_rounds(self, *, joins: bool, awaits: bool) -> None:
        """Offer pulls that wait for a round, if pushes are applied in rounds.

        Args:
            joins: whether a worker enters with such a request.
            awaits: whether a worker may be late for a round, or servers be at different rounds.
        """
        if self.rounds is None:
            return
        where = (
            self.server,
            self.rounds,
            self.plan,
            self.trace_unchanged_number,
            self.delta_encoder,
        )
        enter = RoundPull(*where, self.held, enters=True, joins=joins, is_grouped=self.is_grouped)
        size = self.parameter_layout.size_bytes
        self.offer(Kind.ENTER_ROUND, enter.trace, reply_bytes=size)
        if awaits:
            wait = RoundPull(
                *where, self.awaited_values, enters=False, joins=False, is_grouped=self.is_grouped
            )
            size = self.awaited_values.layout.size_bytes
            self.offer(Kind.AWAIT_ROUND, wait.trace, reply_bytes=size)

    def offer_slots(self) -> None:
        """Offer the first values of optimizer variables, if workers run the optimizers."""
        if self.program.schedule.worker_slots:
            pull = self.trace_locked(self._pull_slots, held=self.slots)
            self.offer(Kind.PULL, pull, call_number=SLOTS, reply_bytes=self.slot_layout.size_bytes)

    def _pull_slots(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        server_ledger = self.server.ledger
        ledger = server_ledger.open()
        if self.update_counts is not None:
            alive = self.plan.is_alive(header, ledger, header[Request.WORKER])
            self.update_counts.set(header[Request.UPDATES], condition=alive)
        ledger.count_traffic(received_bytes=0, sent_bytes=self.slot_layout.size_bytes)
        server_ledger.write_changes(ledger)
        return ReplyHeader(ledger.read(server_ledger.layout.VERSION))

    def build_push(self, number: int) -> Push:
        """Return the push of an optimizer call, applied immediately or in the program's rounds."""
        schedule, rounds = self.program.schedule, self.rounds
        kind = ServerOptimizerCall if schedule.local is None else DeltaCall
        call = kind(
            self.wires[number],
            number=0 if self.each_call_ends_step else number,
            is_last=self.each_call_ends_step or number == len(self.wires) - 1,
            optimizer=self.program.calls[number].optimizer,
            server=self.server,
            get_update=self.get_update,
        )
        admission, drop_above = self.get_admission(number), None
        if rounds is None:
            # A step ends with its last push.
            is_bounded = schedule.is_bounded and call.is_last
            clock = self.server.gate if is_bounded else OpenGate()
            gate: PushGate = ClockGate(clock, self.server.ledger)
            application: Application = call.apply_at_once
            drop_above = get_drop_above(call.optimizer) if call.is_update else None
        else:
            sums, call_id = self.create_contributions(call, number)
            self.contributions.append(sums)
            gate = barrier = RoundBarrier(
                call,
                rounds,
                sums,
                call_id=call_id,
                weighs_examples=admission.has_tickets,
                counts_reduced=self.is_grouped or self.update_counts is not None,
                update_counts=self.update_counts,
            )
            application = barrier.contribute
        return Push(
            call=call,
            plan=self.plan,
            terms=PushTerms(
                admission,
                is_update=call.is_update,
                counts_as_update=call.counts_as_update,
                in_rounds=rounds is not None,
                drop_above=drop_above,
                workers=self.server.workers,
            ),
            application=application,
            gate=gate,
            reports=self.reports if call.is_last else None,
            sends_write_count=call.is_last and bool(self.unchanged.variables),
            delta_encoder=self.delta_encoder,
            group=rounds if self.is_grouped else None,
        )
