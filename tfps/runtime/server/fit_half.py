"""The server's half of a program of `fit`, whose steps go by tickets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.consistency.ledger import Entries
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.server_update import ServerUpdate
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import ReplyHeader
from tfps.runtime.message.wire import CallWire, call_wire, report_layout
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import ByTicket
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.pull_recorder import PullRecorder
from tfps.runtime.server.push import Push
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.requests import Finish, Join, Leave
from tfps.transport.message import Kind


class FitHalf(ServerHalf):
    """A worker joins, pushes by ticket, and leaves; server 0 hands the tickets out.

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
        self.report_layout = report_layout(program)
        self._reports: Reports | None = None
        self._quotas: Quotas | None = None
        if server.hands_out_tickets:
            self._reports = Reports(program, runtime=runtime, server=server)
            batches = program.schedule.adaptive_batches
            if batches > 1:
                self._quotas = Quotas(server.ledger, adaptive_batches=batches)
        # What workers update themselves, no server does.
        calls = program.optimizer_calls if program.schedule.local is None else ()
        optimizers = {id(call.optimizer): call.optimizer for call in calls}
        super().__init__(
            program,
            runtime=runtime,
            server=server,
            update_of=update_of,
            updates=[update_of(optimizer) for optimizer in optimizers.values()],
            name=program.name,
        )

    def wire(self, number: int) -> CallWire:
        reports = self._reports is not None
        return call_wire(self.program, number, device=self.server.device, reports=reports)

    def offer_all(self) -> None:
        held_bytes, report_bytes = self.parameter_layout.size_bytes, 0
        if self._reports is not None:
            report_bytes = self.report_layout.size_bytes
        join = Join(
            self.server,
            plan=self.plan,
            held=self.held,
            recorder=PullRecorder(
                self.updates, natives=self.held.natives, device=self.server.device
            ),
            pipelined=self.program.schedule.is_pipelined,
            quotas=self._quotas,
            rounds=self.rounds,
        )
        self.offer(Kind.JOIN, join, reply_bytes=held_bytes)
        for number in range(len(self.wires)):
            self.offer_push(number, self._push(number))
        self.runtime.push_functions.update(
            self.function(Kind.PUSH, number) for number in range(len(self.wires))
        )
        self.offer_look_ups(self._found)
        if self._reports is not None and not self.program.trains:
            finish = Finish(self.server, plan=self.plan, reports=self._reports)
            self.offer(Kind.FINISH, finish, request_bytes=report_bytes)
        # Without backup workers nobody is late, and all servers begin a round together.
        apart = len(self.runtime.servers) > 1 or len(self.wires) > 1
        awaits = bool(self.runtime.mode.backup_workers) and apart
        self.offer_rounds(joins=False, awaits=awaits)
        self.offer_slots()
        leave = Leave(self.server, plan=self.plan, reports=self._reports)
        self.offer(Kind.LEAVE, leave, request_bytes=report_bytes)

    @functools.cached_property
    def _report(self) -> Callable[..., list[np.ndarray[Any, Any]]]:
        assert self._reports is not None
        return self.server.control.function(self._reports.read, arguments=1)

    def report(self, *, reset: bool = False) -> tuple[np.ndarray[Any, Any], ...]:
        """The ledger, the metric totals and the newest outputs; optionally set back to zero."""
        cells, metrics, outputs = self._report(int(reset))
        return cells, metrics, outputs

    def _push(self, number: int) -> Push:
        is_last = number == len(self.wires) - 1
        call = self.optimizer_call(number, position=number, is_last=is_last)
        reports = self._reports if is_last else None
        pipelined = self.program.schedule.is_pipelined
        return self.push_of(
            call,
            ByTicket(number, hands_out=reports is not None, pipelined=pipelined),
            contributions=lambda: (
                Contributions(call, runtime=self.runtime),
                1,
            ),
            reports=reports,
            quotas=self._quotas if reports is not None else None,
        )

    def _found(self, header: tf.Tensor, entries: Entries) -> tf.Tensor:
        """The header of an answer with rows."""
        status = self.plan.status(header, alive=self.plan.is_alive(header, entries))
        return ReplyHeader(entries.read(self.server.ledger.layout.VERSION), status).tensor()
