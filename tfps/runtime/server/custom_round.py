"""A custom loop's functions on one server where each optimizer call is a round of all workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.admission import count_contribution
from tfps.consistency.ledger import MAX_STAGES
from tfps.consistency.round_gate import Contribution, RoundGate
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.answers import Answers
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.custom_server import CustomServer, reply_header
from tfps.runtime.server.server_round import RoundPush, RoundRequest
from tfps.runtime.server.server_stage import ServerStage, count_durations
from tfps.transport.message import Kind, Request
from tfps.transport.packing import pack, unpack
from tfps.transport.service import Entry


class CustomRoundPush(RoundPush):
    """Traces one optimizer call's push: admit, add, complete the round or wait for it, reply.

    Args:
        stage: what a round changes.
        unit: its number; see `consistency.rounds`.
        rounds: of the server.
        contributions: of the unit.
        answers: how replies are headed.
    """

    def __init__(
        self,
        stage: ServerStage,
        *,
        unit: int,
        rounds: RoundGate,
        contributions: Contributions,
        answers: Answers,
    ) -> None:
        super().__init__(
            stage, rounds=rounds, contributions=contributions, answers=answers, reports=None
        )
        self.unit = unit

    def trace(self, header: tf.Tensor, ids: tf.Tensor, payload: tf.Tensor) -> list[tf.Tensor]:
        """The function that answers a push."""
        wire, ledger, rounds = self.stage.wire, self.stage.server.ledger, self.rounds
        tensors, fields = unpack(wire.server_request, payload), tf.unstack(header)
        with ledger.locked():
            entries = ledger.entries()
            is_ours = self.answers.is_ours(header)
            incarnation = tf.where(is_ours, fields[Request.INCARNATION], -1)
            alive = entries.is_alive(fields[Request.SLOT], incarnation)
            made = self._contribution(fields, alive)
            in_time, state = found = rounds.accepts(made)
            counted = count_contribution(
                entries,
                alive=alive,
                in_time=in_time,
                late_rounds=(state.position - fields[Request.BASE_VERSION]) // MAX_STAGES,
            )
            entries.count_traffic(
                received_bytes=wire.request.size_bytes, sent_bytes=wire.reply.size_bytes
            )
            count_durations(self.stage.server, entries, header)
            # How many examples a gradient comes from is not known: all weigh the same.
            done = self.contributions.add(
                tensors,
                examples=tf.constant(1, tf.int64),
                position=state.position,
                condition=counted.fresh,
            )
            for operation in ledger.post(entries):
                private.run_after(operation, done.op)
            with tf.control_dependencies([done]):
                has_to_wait = rounds.push(made, found, apply=self._apply)
            position, *values = self._read()
        position, *values = tf.cond(
            has_to_wait, lambda: self._wait(made), lambda: [position, *values]
        )
        reply = reply_header(position, counted.staleness, counted.status)
        names = [native.shared_name for native in wire.values.natives]
        return [reply, ids, pack(wire.server_reply, dict(zip(names, values, strict=True)))]

    def _contribution(self, fields: list[tf.Tensor], alive: tf.Tensor) -> Contribution:
        made = super()._contribution(fields, alive)
        return Contribution(
            made.slot, made.incarnation, made.alive, made.position, made.next_position, self.unit
        )


class RoundServer(CustomServer):
    """The server's half of a scheduled function whose optimizer calls are rounds.

    Each call is a round of its own, so a call can stand in a loop or a branch. A worker joins with
    its first pull, and each pull is of one round that it agrees on with all servers.
    """

    takes_part = True
    stage_kind = ServerStage

    def __init__(self, *arguments: Any, runtime: Runtime, **options: Any) -> None:
        self._runtime = runtime
        self._contributions: list[Contributions] = []  # kept, since servers find them by name
        super().__init__(*arguments, runtime=runtime, **options)

    @property
    def enter_round(self) -> Any:
        """Parameters of a round, from which on the worker takes part."""
        return self._functions[Kind.ENTER_ROUND, 0][1]

    @property
    def await_round(self) -> Any:
        """Parameters of a round or a later one; None where nobody can be late."""
        _, function = self._functions.get((Kind.AWAIT_ROUND, 0), (None, None))
        return function

    def _all_functions(self) -> dict[tuple[Kind, int], tuple[Entry, Any]]:
        functions = super()._all_functions()
        held_bytes = self.parameter_layout.size_bytes
        kinds = [Kind.ENTER_ROUND]
        if self._runtime.mode.backup_workers:
            kinds.append(Kind.AWAIT_ROUND)
        for kind in kinds:
            request = self._request(enters=kind == Kind.ENTER_ROUND)
            entry = Entry(kind, 0, 0, held_bytes)
            functions[kind, 0] = (entry, self._function(request.trace))
        return functions

    def _request(self, *, enters: bool) -> RoundRequest:
        assert self.server.rounds is not None
        return RoundRequest(
            self.server.rounds,
            held=self._held,
            server=self.server,
            answers=Answers(self.job_id, self.plan_id),
            enters=enters,
            joins=enters,
        )

    def _push_of(self, stage: int) -> Callable[..., Sequence[tf.Tensor]]:
        assert self.server.rounds is not None
        called = self.program.stages[stage]
        made = self.stage_kind(
            self.wires[stage],
            number=0,
            is_last=True,
            optimizer=called.optimizer,
            server=self.server,
            update_of=self._update_of,  # type: ignore[arg-type]  # workers call optimizers only
        )
        unit = self._runtime.units.number(called, layouts=self._runtime.layouts)
        contributions = self._runtime.units.sums(
            unit,
            self.server.index,
            lambda: Contributions(made, runtime=self._runtime),
        )
        self._contributions.append(contributions)
        return CustomRoundPush(
            made,
            unit=unit,
            rounds=self.server.rounds,
            contributions=contributions,
            answers=Answers(self.job_id, self.plan_id),
        ).trace
