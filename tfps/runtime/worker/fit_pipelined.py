"""Training of `fit` that pushes one step while it computes the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import NOT_MEASURED
from tfps.runtime.message.wire import METRICS, OUTPUTS, in_shards, name_of
from tfps.runtime.program.program import Program
from tfps.runtime.worker.fit_loop import FitLoop, Visit, fields_of
from tfps.runtime.worker.fit_step import FitStep, Pushed
from tfps.transport.message import Request
from tfps.transport.packing import pack


class PipelinedStep(FitStep):
    """Traces steps that keep what they would push, and pushes of steps before.

    The gradient of step i + 1 is computed from parameters that lack the update of step i: a delay
    of exactly one, which counts as staleness.
    """

    payloads: Sequence[tf.Tensor] = ()  # of the step that was traced last

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        self.payloads = [body.payload for body in self.encode(call_number, tensors).values()]

    def send_pending(
        self,
        payloads: Sequence[tf.Tensor],
        *,
        ticket: tf.Tensor,
        versions: tf.Tensor,
        fields: Mapping[Request, tf.Tensor],
    ) -> Pushed:
        """Push what a step before this one has left.

        Args:
            payloads: by server.
            ticket: of that step.
            versions: by server, that it was computed from.
            fields: header fields about the step before that.
        """
        self.ticket, self.fields = ticket, dict(fields)
        self.versions = tf.unstack(versions, num=len(self.servers))
        return self.send(0, {p: Body(payload) for p, payload in enumerate(payloads)})

    def send_nothing(self, *, versions: tf.Tensor, next_ticket: tf.Tensor) -> Pushed:
        """In the place of the push before the first one: the parameters stay as they are."""
        variables = self.program.variables
        values = in_shards(
            {name_of(v): self.copies.read(v) for v in variables}, variables, name=name_of
        )
        return Pushed(
            payloads=[pack(s.parameter_layout, values) for s in self.servers],
            versions=tf.unstack(versions, num=len(self.servers)),
            accepted=tf.constant(True),
            next_ticket=next_ticket,
            microseconds=tf.constant(NOT_MEASURED, tf.int64),
        )

    def empty_payloads(self) -> list[tf.Tensor]:
        """What stands for the payloads of a step that was not taken."""
        return [tf.zeros([s.wires[0].request.size_bytes], tf.uint8) for s in self.servers]

    def take_answer(self, payloads: Sequence[tf.Tensor]) -> None:
        """Take over the parameters of all servers' replies."""
        self.load(payloads, self.take_over, call_number=0)


class PipelinedLoop(FitLoop):
    """Hides the exchange behind the computation, for one step of staleness.

    A worker joins with two tickets. Each turn of the loop sends what the turn before has computed
    and computes the next gradient at the same time. When no ticket is left the last push is sent
    alone; should its reply bring another ticket, one that came back from a lost worker, the
    pipeline fills again.

    Source: Li et al., "Pipe-SGD: A Decentralized Pipelined SGD Framework", NeurIPS 2018.
    """

    def make_step(self, program: Program, **options: Any) -> PipelinedStep:
        return PipelinedStep(program, **options)

    def take_steps(
        self, step: PipelinedStep, visit: Visit, state: dict[str, Any]
    ) -> dict[str, Any]:
        state |= {
            "pending": step.empty_payloads(),
            "pending_ticket": tf.constant(NO_TICKET, tf.int64),
            "pending_versions": state["versions"],
            "pending_examples": tf.constant(0, tf.int64),
            "ahead": step.ahead_ticket,
        }

        def turn(state: dict[str, Any]) -> tuple[dict[str, Any]]:
            ticket, batch = state["ticket"], visit.batch(state)
            pushed = self._send_pending(step, state)
            report = step.run(
                batch,
                ticket=ticket,
                seeds=visit.seed_states(ticket, self.program.draws_per_step),
                versions=state["versions"],
                report={METRICS: state["metrics"], OUTPUTS: state["outputs"]},
                fields={},
            )
            payloads = list(step.payloads)
            # Only now: the step has been computed from the parameters before.
            with tf.control_dependencies(payloads):
                step.take_answer([tf.identity(payload) for payload in pushed.payloads])
            return (
                {
                    **visit.fetch(pushed.next_ticket),
                    **self._after(pushed, state),
                    "metrics": report[METRICS],
                    "outputs": report[OUTPUTS],
                    "steps": state["steps"] + 1,
                    "pending": payloads,
                    "pending_ticket": ticket,
                    "pending_versions": state["versions"],
                    "pending_examples": visit.source.examples(batch),
                    "ahead": tf.constant(NO_TICKET, tf.int64),
                },
            )

        def run_dry(state: dict[str, Any]) -> tuple[dict[str, Any]]:
            state = visit.loop(lambda state: state["there"], turn, state)
            pushed = self._send_pending(step, state)
            step.take_answer(pushed.payloads)
            # Also where the ticket at hand lies behind the end of the data: this one may have come
            # back from a lost worker, and nobody else might be left to take it.
            return (
                {
                    **state,
                    **visit.fetch(pushed.next_ticket),
                    **self._after(pushed, state),
                    "pending_ticket": tf.constant(NO_TICKET, tf.int64),
                    "ahead": tf.constant(NO_TICKET, tf.int64),
                },
            )

        return visit.loop(lambda state: state["there"], run_dry, state)

    def _send_pending(self, step: PipelinedStep, state: dict[str, Any]) -> Pushed:
        flat = tf.cond(
            state["pending_ticket"] >= 0,
            lambda: _flat(
                step.send_pending(
                    state["pending"],
                    ticket=state["pending_ticket"],
                    versions=state["pending_versions"],
                    fields=fields_of(state),
                )
            ),
            lambda: _flat(
                step.send_nothing(versions=state["versions"], next_ticket=state["ahead"])
            ),
        )
        count = len(self.servers)
        versions, accepted, next_ticket, microseconds = flat[count:]
        return Pushed(
            payloads=list(flat[:count]),
            versions=tf.unstack(versions, num=count),
            accepted=accepted,
            next_ticket=next_ticket,
            microseconds=microseconds,
        )

    def _after(self, pushed: Pushed, state: dict[str, Any]) -> dict[str, Any]:
        """What is known once the servers have answered the pending push."""
        return {
            "versions": tf.stack(pushed.versions),
            "closes": tf.where(pushed.accepted, state["pending_ticket"], NO_TICKET),
            "closed_steps": state["closed_steps"],
            "examples": state["pending_examples"],
            "push": pushed.microseconds,
            "pull": tf.constant(NOT_MEASURED, tf.int64),
        }


def _flat(pushed: Pushed) -> list[tf.Tensor]:
    return [
        *pushed.payloads,
        tf.stack(pushed.versions),
        pushed.accepted,
        pushed.next_ticket,
        pushed.microseconds,
    ]
