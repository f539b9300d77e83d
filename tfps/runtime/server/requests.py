"""Requests that a server answers at once, beside pushes: each is one function under its mutex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency import issuing
from tfps.consistency import ledger as decide
from tfps.consistency.issuing import TicketGrant
from tfps.consistency.ledger import NO_TICKET, Entries
from tfps.consistency.round_gate import RoundGate
from tfps.consistency.server_quotas import Quotas
from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import PlanHeader, ReplyHeader
from tfps.runtime.message.wire import Parts, name_of
from tfps.runtime.server.entry import enter_if_new
from tfps.runtime.server.pull_recorder import PullRecorder
from tfps.runtime.server.reports import Reports
from tfps.runtime.server.server_optimizer_call import count_durations
from tfps.transport.layout import Layout
from tfps.transport.message import COORDINATOR, Request
from tfps.transport.packing import pack, unpack

NOTHING = Parts((), ())


class LockedRequest:
    """Traces the answer to a kind of request: decided, read and counted under the server's mutex.

    Args:
        server: whose function it is.
        plan: of the request.
        held: what the reply brings.
    """

    def __init__(self, server: Server, *, plan: PlanHeader, held: Parts = NOTHING) -> None:
        self.server, self.ledger, self.plan, self.held = server, server.ledger, plan, held

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers such a request."""
        with self.ledger.locked():
            reply = self.decide(header, payload)
            values = {n.shared_name: self.read(n, header) for n in self.held.natives}
            self.follow(header, reply)
        return [reply.tensor(), ids, pack(self.held.server_layout, values)]

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        """Trace what the request changes; answers the header of the reply."""
        raise NotImplementedError

    def read(self, native: Any, header: tf.Tensor) -> tf.Tensor:
        """Trace the value of a variable or slab that the reply brings."""
        value: tf.Tensor = native.read_value()
        return value

    def follow(self, header: tf.Tensor, reply: ReplyHeader) -> None:
        """Trace what follows when the values have been read."""

    def count_reply(self, entries: Entries) -> None:
        """Count what the reply brings."""
        entries.count_traffic(received_bytes=0, sent_bytes=self.held.layout.size_bytes)


class Join(LockedRequest):
    """A worker begins a ticket run: parameters, and its first ticket.

    Args:
        server: whose function it is.
        plan: of the request.
        held: the parameters.
        recorder: records what the worker is answered.
        pipelined: it gets a second ticket as well.
        quotas: how many tickets it gets at once; None: one.
        rounds: whose position is the version; None: the program has none.
    """

    def __init__(
        self,
        server: Server,
        *,
        plan: PlanHeader,
        held: Parts,
        recorder: PullRecorder,
        pipelined: bool,
        quotas: Quotas | None,
        rounds: RoundGate | None,
    ) -> None:
        super().__init__(server, plan=plan, held=held)
        self._recorder, self._pipelined, self._quotas = recorder, pipelined, quotas
        self._rounds = rounds

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        worker, layout = header[Request.WORKER], self.ledger.layout
        accepted = enter_if_new(self.server, self.plan, header)
        entries = self.ledger.entries()
        version, clock = entries.read(layout.VERSION), entries.read(layout.clock(worker))
        grant = self._first_tickets(entries, accepted, worker)
        self.count_reply(entries)
        self.ledger.post(entries)
        if self.server.hands_out_tickets and self._pipelined:
            entries = self.ledger.entries()
            ahead = issuing.issue(
                entries, alive=accepted, worker=worker, pushed=NO_TICKET, pipelined=True
            )
            self.ledger.post(entries)
            grant = TicketGrant(grant.ticket, grant.batches, ahead)
        if self._rounds is not None:
            version = self._rounds.position()
        self._accepted = accepted
        status = self.plan.status(header, alive=accepted)
        return ReplyHeader(version, status, grant=grant, clock=clock)

    def follow(self, header: tf.Tensor, reply: ReplyHeader) -> None:
        worker = WorkerAt(header[Request.WORKER], reply.version)
        self._recorder.record(worker, counts=self._accepted, is_first=True)

    def _first_tickets(self, entries: Entries, alive: tf.Tensor, worker: tf.Tensor) -> TicketGrant:
        if not self.server.hands_out_tickets:
            return TicketGrant()
        if self._quotas is None:
            return TicketGrant(issuing.issue(entries, alive=alive, worker=worker, pushed=NO_TICKET))
        several = issuing.issue_several(
            entries, alive=alive, worker=worker, pushed=NO_TICKET, quota=self._quotas.known(worker)
        )
        return TicketGrant(*several)


class Pull(LockedRequest):
    """Parameters of one moment, for whoever asks: a scheduled function, or the coordinator.

    Args:
        server: whose function it is.
        plan: of the request.
        held: the parameters.
        recorder: records what a worker is answered.
    """

    def __init__(
        self, server: Server, *, plan: PlanHeader, held: Parts, recorder: PullRecorder
    ) -> None:
        super().__init__(server, plan=plan, held=held)
        self._recorder = recorder

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        entries = self.ledger.entries()
        entries.count(self.ledger.layout.EXCHANGES)
        self.count_reply(entries)
        self.ledger.post(entries)
        return ReplyHeader(entries.read(self.ledger.layout.VERSION))

    def follow(self, header: tf.Tensor, reply: ReplyHeader) -> None:
        is_worker = header[Request.TICKET] != COORDINATOR
        sender = WorkerAt(header[Request.WORKER], reply.version, is_worker)
        self._recorder.record(sender, counts=is_worker, is_first=True)


class MemberPull(Pull):
    """The same for workers that others may wait for: a new one enters with its first pull."""

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        enter_if_new(self.server, self.plan, header)
        reply, entries = super().decide(header, payload), self.ledger.entries()
        self._alive = self.plan.is_alive(header, entries)
        status = self.plan.status(header, alive=self._alive)
        clock = entries.read(self.ledger.layout.clock(header[Request.WORKER]))
        return ReplyHeader(reply.version, status, clock=clock)

    def follow(self, header: tf.Tensor, reply: ReplyHeader) -> None:
        worker = WorkerAt(header[Request.WORKER], reply.version)
        self._recorder.record(worker, counts=self._alive, is_first=True)


class SlotPull(LockedRequest):
    """What optimizers begin with that a worker runs itself."""

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        entries = self.ledger.entries()
        self.count_reply(entries)
        self.ledger.post(entries)
        return ReplyHeader(entries.read(self.ledger.layout.VERSION))


class Finish(LockedRequest):
    """An evaluation step is done: its report is counted, and the next ticket handed out.

    Args:
        server: the one that hands out tickets.
        plan: of the request.
        reports: where steps are counted.
    """

    def __init__(self, server: Server, *, plan: PlanHeader, reports: Reports) -> None:
        super().__init__(server, plan=plan)
        self._reports = reports

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        worker, report = header[Request.WORKER], unpack(self._reports.layout, payload)
        entries = self.ledger.entries()
        alive = self.plan.is_alive(header, entries)
        done = decide.finish(entries, alive=alive, worker=worker, ticket=header[Request.TICKET])
        self._reports.count(done, report)
        ticket = issuing.issue(entries, alive=alive, worker=worker, pushed=NO_TICKET)
        version = entries.read(self.ledger.layout.VERSION)
        self.ledger.post(entries)
        status = self.plan.status(header, alive=alive)
        return ReplyHeader(version, status, grant=TicketGrant(ticket))


class Leave(LockedRequest):
    """A worker ends a ticket run: its last ticket is closed.

    Args:
        server: whose function it is.
        plan: of the request.
        reports: where the last step is counted; None: on another server.
    """

    def __init__(self, server: Server, *, plan: PlanHeader, reports: Reports | None) -> None:
        super().__init__(server, plan=plan)
        self._reports = reports

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        worker, entries = header[Request.WORKER], self.ledger.entries()
        alive = self.plan.is_alive(header, entries)
        closed = tf.constant(False)
        if self._reports is not None:
            report = unpack(self._reports.layout, payload)
            closed = self._reports.close(entries, alive, header, report)
        decide.remove(entries, worker=worker, leaves=alive, closed=closed)
        count_durations(self.server, entries, header)
        version = entries.read(self.ledger.layout.VERSION)
        self.ledger.post(entries)
        self.server.membership.leave(worker, alive)
        return ReplyHeader(version, self.plan.status(header, alive=alive))


class WriteBack(LockedRequest):
    """What a scheduled function has assigned: changes add up, moving averages mix.

    Args:
        server: whose function it is.
        plan: of the request.
        state: the variables, and the parts of them, of this server.
        layout: of the request.
    """

    def __init__(
        self, server: Server, *, plan: PlanHeader, state: Sequence[Any], layout: Layout
    ) -> None:
        super().__init__(server, plan=plan)
        self._state, self._layout = state, layout

    def decide(self, header: tf.Tensor, payload: tf.Tensor) -> ReplyHeader:
        changes, workers = unpack(self._layout, payload), self.ledger.layout.workers
        for variable in self._state:
            value, change = variable._value, changes[name_of(variable)]
            if value.dtype.is_bool:
                value.assign(change, read_value=False)
            elif value.dtype.is_floating and not variable.trainable:
                value.assign_add(change / workers, read_value=False)
            else:
                value.assign_add(change, read_value=False)
        return ReplyHeader(self.ledger.entries().read(self.ledger.layout.VERSION))
