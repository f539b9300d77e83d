"""The server's half of a scheduled function: pull, push without tickets, and write-back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import Entries
from tfps.optimizers.server_update import ServerUpdate
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server
from tfps.runtime.message.reply_header import ReplyHeader
from tfps.runtime.message.wire import CallWire, function_wire, parameter_layout, shards_on
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import AdmissionPolicy, Anyone, ByMember
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.pull_recorder import PullRecorder
from tfps.runtime.server.push import Push
from tfps.runtime.server.requests import MemberPull, Pull, WriteBack
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall, Update
from tfps.transport.message import Kind

_numbers = itertools.count()  # two programs of equal layout are two plans


class FunctionHalf(ServerHalf):
    """A function pulls, pushes with each optimizer call, and writes back what it has assigned.

    What a coordinator schedules carries no ticket: a function that is run again after a worker was
    lost applies its gradients again, as in TensorFlow. Each push is still one atomic update.

    Where workers wait for each other, a worker joins with its first pull, and each optimizer call
    is a step, or a round, of its own: so a call can stand in a loop or a branch.

    Args:
        program: what the function touches.
        runtime: the job.
        server: the server whose functions these are.
        update_of: the server-side update of an optimizer.
        updates: of optimizers that may ask what a worker was answered.
        uses_replies: whether workers go on with what a push is answered with.
    """

    def __init__(
        self,
        program: Program,
        *,
        runtime: Runtime,
        server: Server,
        update_of: Callable[[Any], Update],
        updates: Sequence[ServerUpdate],
        uses_replies: bool,
    ) -> None:
        self.records_pushes = uses_replies
        self.state = shards_on(program.state, server.device)
        self.state_layout = parameter_layout(self.state)
        super().__init__(
            program,
            runtime=runtime,
            server=server,
            update_of=update_of,
            updates=updates,
            name=f"function {next(_numbers)}",
        )

    @property
    def takes_part(self) -> bool:
        """Whether workers that run the function are waited for."""
        return self.program.schedule.is_bounded or self.rounds is not None

    def wire(self, number: int) -> CallWire:
        return function_wire(self.program, number, device=self.server.device)

    def offer_all(self) -> None:
        kind = MemberPull if self.program.schedule.is_bounded else Pull
        pull = kind(
            self.server,
            plan=self.plan,
            held=self.held,
            recorder=PullRecorder(
                self.updates, natives=self.held.natives, device=self.server.device
            ),
        )
        self.offer(Kind.PULL, pull, reply_bytes=self.parameter_layout.size_bytes)
        for number in range(len(self.wires)):
            self.offer_push(number, self._push(number))
        self.offer_look_ups(self._found)
        if self.state:
            write_back = WriteBack(
                self.server, plan=self.plan, state=self.state, layout=self.state_layout
            )
            self.offer(Kind.WRITE_BACK, write_back, request_bytes=self.state_layout.size_bytes)
        self.offer_rounds(joins=True, awaits=bool(self.runtime.mode.backup_workers))
        self.offer_slots()

    def _push(self, number: int) -> Push:
        call = self.optimizer_call(number, position=0, is_last=True)
        admission: AdmissionPolicy = ByMember() if self.takes_part else Anyone()
        return self.push_of(
            call,
            admission,
            contributions=lambda: self._contributions_of(number, call),
        )

    def _contributions_of(
        self, number: int, call: ServerOptimizerCall
    ) -> tuple[Contributions, int]:
        """The same for every function that makes the optimizer call."""
        call_ids, runtime = self.runtime.call_ids, self.runtime
        call_id = call_ids.number(self.program.calls[number], layouts=runtime.layouts)
        sums = call_ids.sums(
            call_id,
            self.server.index,
            lambda: Contributions(call, runtime=runtime),
        )
        return sums, call_id

    def _found(self, header: tf.Tensor, entries: Entries) -> tf.Tensor:
        """The header of an answer with rows."""
        return ReplyHeader(entries.read(self.server.ledger.layout.VERSION)).tensor()
