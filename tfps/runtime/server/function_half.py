"""The server's half of a scheduled function: pull, push with each call, and write-back."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.applied_window import cell_of_function
from tfps.consistency.ledger import Ledger
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.message.reply_header import ReplyHeader
from tfps.runtime.message.wire import (
    CallWire,
    function_wire,
    name_of,
    parameter_layout,
    shards_on,
)
from tfps.runtime.server.admission import Anyone, ByFunction, ByMember
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.requests import enter_if_new, record_pull
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall
from tfps.transport.layout import Layout
from tfps.transport.message import COORDINATOR, Kind, Request
from tfps.transport.packing import unpack


class FunctionHalf(ServerHalf):
    """A function pulls, pushes with each optimizer call, and writes back what it has assigned.

    A function that is run again, after a worker was lost, makes the same requests under the same
    keys (see `consistency.applied_window`). What was applied before is not applied again.

    Where workers wait for each other, a worker joins with its first pull, and each optimizer call
    is a step, or a round, of its own: so a call can stand in a loop or a branch.
    """

    ends_with_each_call = True

    @functools.cached_property
    def state(self) -> tuple[Any, ...]:
        """What of the variables that the function assigns lies on this server."""
        return shards_on(self.program.state, self.server.device)

    @functools.cached_property
    def state_layout(self) -> Layout:
        """Of what is written back."""
        return parameter_layout(self.state)

    @property
    def takes_part(self) -> bool:
        """Whether workers that run the function are waited for."""
        return self.program.schedule.is_bounded or self.rounds is not None

    def wire(self, number: int) -> CallWire:
        return function_wire(self.program, number, device=self.server.device)

    def offer_all(self) -> None:
        pull = self.locked(self._pull, held=self.held)
        self.offer(Kind.PULL, pull, reply_bytes=self.parameter_layout.size_bytes)
        self.offer_pushes()
        self.offer_look_ups()
        if self.state:
            write_back = self.locked(self._write_back)
            self.offer(Kind.WRITE_BACK, write_back, request_bytes=self.state_layout.size_bytes)
        self.offer_rounds(joins=True, awaits=bool(self.runtime.mode.backup_workers))
        self.offer_slots()

    def admission(self, number: int) -> Anyone:
        return ByMember() if self.takes_part else ByFunction()

    def contributions(self, call: ServerOptimizerCall, number: int) -> tuple[Contributions, int]:
        """The same for every function that makes the optimizer call."""
        call_ids, runtime = self.runtime.call_ids, self.runtime
        call_id = call_ids.number(self.program.calls[number], layouts=runtime.layouts)
        index = self.server.index

        def contributions() -> Contributions:
            return Contributions(call, runtime=runtime, of_functions=True)

        return call_ids.sums(call_id, index, contributions), call_id

    def reply_with_rows(self, header: Sequence[tf.Tensor], ledger: Ledger) -> ReplyHeader:
        return ReplyHeader(ledger.read(ledger.layout.VERSION))

    def _pull(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """Parameters of one moment, for whoever asks: a scheduled function, or the coordinator.

        Where others may wait for a worker, a new one enters with its first pull.
        """
        worker, server_ledger = header[Request.WORKER], self.server.ledger
        is_member = self.program.schedule.is_bounded
        if is_member:
            enter_if_new(self.server, self.plan, header)
        ledger = server_ledger.open()
        ledger.count(server_ledger.layout.EXCHANGES)
        ledger.count_traffic(received_bytes=0, sent_bytes=self.parameter_layout.size_bytes)
        server_ledger.post(ledger)
        version = ledger.read(server_ledger.layout.VERSION)
        if is_member:
            counts = self.plan.is_alive(header, ledger, worker)
            clock = ledger.read(server_ledger.layout.clock(worker))
            reply = ReplyHeader(version, self.plan.status(header, alive=counts), clock=clock)
        else:
            counts, reply = header[Request.TICKET] != COORDINATOR, ReplyHeader(version)
        known = WorkerAt(worker, version)
        record_pull(self.updates, self.held, known, self.server, counts=counts, is_first=True)
        return reply

    def _write_back(self, header: Sequence[tf.Tensor], payload: tf.Tensor) -> ReplyHeader:
        """What a scheduled function has assigned: changes add up, moving averages mix."""
        server_ledger, key = self.server.ledger, header[Request.TICKET]
        changes, workers = unpack(self.state_layout, payload), self.server.workers
        cell = cell_of_function(key)

        def take() -> tf.Tensor:
            for variable in self.state:
                value, change = variable._value, changes[name_of(variable)]
                if value.dtype.is_bool:
                    value.assign(change, read_value=False)
                elif value.dtype.is_floating and not variable.trainable:
                    value.assign_add(change / workers, read_value=False)
                else:
                    value.assign_add(change, read_value=False)
            server_ledger.remember(cell=cell, key=key)
            return tf.constant(0)

        ledger = server_ledger.open()
        ledger.count_traffic(received_bytes=self.state_layout.size_bytes, sent_bytes=0)
        ledger.count(ledger.layout.OTHER_WRITES)
        server_ledger.post(ledger)
        tf.cond(key > server_ledger.applied_key(cell), take, lambda: tf.constant(0))
        return ReplyHeader(server_ledger.open().read(server_ledger.layout.VERSION))
