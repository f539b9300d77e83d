"""Defines the server's functions for a scheduled function: pull, pushes and write-back."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.shards import get_all_shards, get_size_bytes
from tfps.consistency.applied_window import cell_of_function
from tfps.consistency.ledger import Ledger
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.moved_state import (
    ShardMove,
    add_change,
    find_moves,
    get_begin_name,
    list_move_entries,
    unpack_moves,
)
from tfps.runtime.message.reply_header import ReplyHeader
from tfps.runtime.message.request_header import UNCHANGED
from tfps.runtime.message.wire import (
    CallWire,
    build_function_wire,
    build_parameter_layout,
    get_shards_on,
    get_variable_name,
    group_by_slab,
)
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import AdmitAll, AdmitByFunction, AdmitByMember
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.requests import enter_if_new
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall, average_with_old
from tfps.runtime.server.value_version import ValueVersion
from tfps.transport.layout import Layout
from tfps.transport.message import Kind, Request
from tfps.transport.packing import unpack

# Fewer bytes of unchanged values travel with the rest: an exchange of their own costs more.
LEAST_UNCHANGED_BYTES = 16 << 10


class FunctionHalf(ServerHalf):
    """Functions for pulls, pushes of each optimizer call, and the write-back of assigned values.

    A function that is run again, after a worker was lost, makes the same requests under the same
    keys (see `consistency.applied_window`). What was applied before is not applied again.

    Where workers wait for each other, a worker joins with its first pull. Each optimizer call is a
    step, or a round, of its own, so that a call may stand in a loop or a branch.
    """

    each_call_ends_step = True

    def __init__(
        self, program: Program, *, runtime: Runtime, server: Server, **options: Any
    ) -> None:
        unchanged = self._unchanged_variables(program, runtime)
        known = {id(variable) for variable in unchanged}
        self._moving = [v for v in program.variables if id(v) not in known]
        self.unchanged = group_by_slab(get_shards_on(unchanged, server.device))
        self.unchanged_layout = self.unchanged.layout
        if self.unchanged.variables:
            self._value_version = runtime.value_versions.get_or_create(
                f"{self.unchanged_values_key} on {server.index}",
                lambda: ValueVersion(self.unchanged, runtime=runtime, server=server),
            )
        super().__init__(program, runtime=runtime, server=server, **options)

    def _unchanged_variables(self, program: Program, runtime: Runtime) -> list[Any]:
        """Return the variables that the function only reads, if they are large enough.

        None with backup workers in rounds: a worker that is late pulls all parameters of its new
        round.
        """
        moving = {id(variable) for variable in program.changing_variables}
        unchanged = [v for v in program.variables if id(v) not in moving]
        size_bytes = sum(get_size_bytes(shard._value) for shard in get_all_shards(unchanged))
        apart = program.schedule.in_rounds and runtime.mode.backup_workers
        return [] if apart or size_bytes < LEAST_UNCHANGED_BYTES else unchanged

    @functools.cached_property
    def unchanged_values_key(self) -> str:
        """The key of the unchanged values, equal for functions that read the same ones."""
        text = repr((self.unchanged_layout, self.unchanged.server_layout)).encode()
        return f"still_{hashlib.blake2b(text, digest_size=8).hexdigest()}"

    @property
    def initial_variables(self) -> Sequence[Any]:
        return self._moving

    def trace_unchanged_number(self) -> tf.Tensor | int:
        return self._value_version.trace_number() if self.unchanged.variables else 0

    @functools.cached_property
    def state(self) -> tuple[Any, ...]:
        """The variables with a shard or a copy on this server that the function assigns.

        A count of updates or a learning rate has a copy on every server of its optimizer.
        """
        shards, device = get_all_shards(self.program.state), self.server.device
        return tuple(shard for shard in shards if device in shard._value.devices)

    @functools.cached_property
    def moves(self) -> tuple[ShardMove, ...]:
        """The moves of assigned variables, such as moving averages."""
        return find_moves(self.program, self.state)

    @functools.cached_property
    def state_layout(self) -> Layout:
        """The layout of the payload of a write-back."""
        mixed = [
            (get_begin_name(shard), shard._value.dtype.name, tuple(shard._value.shape))
            for shard in get_all_shards(self.program.mixed_variables)
            if self.server.device in shard._value.devices
        ]
        moved = list_move_entries(self.moves, self.program)
        return build_parameter_layout(self.state, [*mixed, *moved])

    @property
    def takes_part(self) -> bool:
        """Whether other workers wait for the workers that run the function."""
        return self.program.schedule.is_bounded or self.rounds is not None

    def build_wire(self, number: int) -> CallWire:
        return build_function_wire(self.program, number, device=self.server.device)

    def offer_all(self) -> None:
        pull = self.trace_locked(self._pull, held=self.held)
        self.offer(Kind.PULL, pull, reply_bytes=self.parameter_layout.size_bytes)
        if self.unchanged.variables:
            pull = self.trace_locked(self._pull_unchanged, held=self.unchanged)
            size = self.unchanged_layout.size_bytes
            self.offer(Kind.PULL, pull, call_number=UNCHANGED, reply_bytes=size)
        self.offer_pushes()
        self.offer_look_ups()
        if self.state:
            write_back = self.trace_locked(self._write_back)
            self.offer(Kind.WRITE_BACK, write_back, request_bytes=self.state_layout.size_bytes)
        self.offer_rounds(joins=True, awaits=bool(self.runtime.mode.backup_workers))
        self.offer_slots()

    def get_admission(self, number: int) -> AdmitAll:
        return AdmitByMember() if self.takes_part else AdmitByFunction()

    def create_contributions(
        self, call: ServerOptimizerCall, number: int
    ) -> tuple[Contributions, int]:
        """Return the sums that all functions with this optimizer call share, and its id."""
        call_ids, runtime = self.runtime.call_ids, self.runtime
        call_id = call_ids.get_number(self.program.calls[number], layouts=runtime.layouts)
        index = self.server.index

        def contributions() -> Contributions:
            return Contributions(call, runtime=runtime, admission=self.get_admission(number))

        return call_ids.get_sums(call_id, index, contributions), call_id

    def make_row_reply(self, header: Sequence[tf.Tensor], ledger: Ledger) -> ReplyHeader:
        return ReplyHeader(ledger.read(ledger.layout.VERSION))

    def _pull(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """Return parameters of one version, to a scheduled function or to the coordinator.

        If other workers wait for members, a new worker enters with its first pull.
        """
        worker, server_ledger = header[Request.WORKER], self.server.ledger
        is_member = self.program.schedule.is_bounded
        if is_member:
            enter_if_new(self.server, self.plan, header)
        ledger = server_ledger.count_exchange(self.parameter_layout.size_bytes)
        version = ledger.read(server_ledger.layout.VERSION)
        if is_member:
            alive = self.plan.is_alive(header, ledger, worker)
            clock = ledger.read(server_ledger.layout.clock(worker))
            reply = ReplyHeader(version, self.plan.compute_status(header, alive=alive), clock=clock)
        else:
            reply = ReplyHeader(version)
        return replace(reply, other_writes=self.trace_unchanged_number())

    def _pull_unchanged(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """Return values that the function does not change, to a worker with outdated copies."""
        ledger = self.server.ledger.count_exchange(self.unchanged_layout.size_bytes)
        version = ledger.read(ledger.layout.VERSION)
        return ReplyHeader(version, other_writes=self.trace_unchanged_number())

    def _write_back(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """Apply a scheduled function's assignments: as moves, or as changes that mix or add up.

        In rounds each function moves an average by its part; a plain assignment, which keeps
        nothing of the old value, counts as a whole.
        """
        server_ledger, key = self.server.ledger, header[Request.TICKET]
        changes, workers = unpack(self.state_layout, payload), self.server.workers
        moves, schedule = unpack_moves(self.moves, changes), self.program.schedule
        in_turn = {
            get_variable_name(move.shard)
            for move in self.moves
            if move.pace.only_adds or schedule.local is not None or not schedule.in_rounds
        }
        cell = cell_of_function(key)

        def take() -> tf.Tensor:
            for variable in self.state:
                value, change = variable._value, changes[get_variable_name(variable)]
                if moved := moves.get(get_variable_name(variable)):
                    old = value.read_value()
                    new = moved.apply_to(old)
                    if get_variable_name(variable) not in in_turn and value.dtype.is_floating:
                        part = average_with_old(old, new, workers)
                        new = tf.where(tf.equal(moved.kept_fraction, 0), new, part)
                    value.assign(new, read_value=False)
                elif value.dtype.is_bool:
                    value.assign(change, read_value=False)
                elif value.dtype.is_floating:
                    new = add_change(
                        value.read_value(),
                        new=change,
                        begin=changes[get_begin_name(variable)],
                        workers=1 if variable.trainable else workers,
                    )
                    value.assign(new, read_value=False)
                else:
                    value.assign_add(change, read_value=False)
            server_ledger.record_applied_key(cell=cell, key=key)
            return tf.constant(0)

        ledger = server_ledger.open()
        ledger.count_traffic(received_bytes=self.state_layout.size_bytes, sent_bytes=0)
        ledger.count(ledger.layout.OTHER_WRITES)
        server_ledger.write_changes(ledger)
        tf.cond(key > server_ledger.applied_key(cell), take, lambda: tf.constant(0))
        return ReplyHeader(server_ledger.open().read(server_ledger.layout.VERSION))
