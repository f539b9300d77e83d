"""The closure of a worker that trains by itself between two exchanges."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.local_step import LocalStep
from tfps.runtime.program import Program
from tfps.runtime.wire import METRICS, OUTPUTS
from tfps.runtime.worker_loop import Visit, WorkerLoop, fields_of
from tfps.runtime.worker_step import NOT_MEASURED
from tfps.transport.message import Request


class LocalLoop(WorkerLoop):
    """A ticket of the servers is the right to one period: so many steps, and an exchange.

    The last period of a round is shorter where its steps, or the data, end before.
    """

    def make_step(self, program: Program, **options: Any) -> LocalStep:
        return LocalStep(program, **options)

    def begin(self, step: LocalStep, visit: Visit, ticket: tf.Tensor) -> dict[str, Any]:
        step.prepare()
        return self._first_of(visit, ticket)

    def take_steps(self, step: LocalStep, visit: Visit, state: dict[str, Any]) -> dict[str, Any]:
        def period(state: dict[str, Any]) -> tuple[dict[str, Any]]:
            step.begin_period()
            done = self._train(step, visit, state)
            step.exchange(
                state["period"],
                versions=state["versions"],
                report={METRICS: state["metrics"], OUTPUTS: state["outputs"]},
                fields={**fields_of(state), Request.STEP_EXAMPLES: done["examples"]},
            )
            return (
                {
                    **self._first_of(visit, step.next_ticket),
                    "versions": tf.stack(step.versions),
                    "metrics": done["metrics"],
                    "outputs": done["outputs"],
                    "closes": tf.where(step.accepted, state["period"], NO_TICKET),
                    "closed_steps": done["steps"],
                    "examples": done["examples"],
                    "push": step.push_microseconds,
                    "pull": tf.constant(NOT_MEASURED, tf.int64),
                    "steps": state["steps"] + done["steps"],
                },
            )

        return visit.loop(lambda state: state["there"], period, state)

    def _train(self, step: LocalStep, visit: Visit, state: dict[str, Any]) -> dict[str, Any]:
        """The steps of a period; answers what they report together."""
        nothing = step.empty_report()
        begin = {
            **{key: state[key] for key in ("ticket", "there", "batch", "wait")},
            "metrics": tf.constant(self.program.totals.empty),
            "outputs": nothing[OUTPUTS],
            "examples": tf.constant(0, tf.int64),
            "steps": tf.constant(0, tf.int64),
        }

        def body(now: dict[str, Any]) -> tuple[dict[str, Any]]:
            batch, steps = visit.batch(now), now["steps"] + 1
            report = step.run(
                batch,
                ticket=now["ticket"],
                seeds=visit.seed_states(now["ticket"], self.program.draws_per_step),
                versions=state["versions"],
                report=nothing,
                fields={},
            )
            # The next batch comes after the step, as everywhere.
            with tf.control_dependencies(list(report.values())):
                ticket = self._ticket_of(visit, state["period"], steps)
            return (
                {
                    **visit.fetch(ticket),
                    "metrics": self.program.totals.combine(now["metrics"], report[METRICS]),
                    "outputs": report[OUTPUTS],
                    "examples": now["examples"] + visit.source.examples(batch),
                    "steps": steps,
                },
            )

        return visit.loop(lambda now: now["there"], body, begin)

    def _first_of(self, visit: Visit, period: tf.Tensor) -> dict[str, Any]:
        """The part of a loop's state that belongs to a period: itself, and its first batch."""
        ticket = self._ticket_of(visit, period, tf.constant(0, tf.int64))
        return {"period": period, **visit.fetch(ticket)}

    def _ticket_of(self, visit: Visit, period: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """What would be the ticket of a period's step if each had one; none behind the end."""
        number = (period - visit.first) * self.program.period_steps + step
        is_one = (period >= 0) & (step < self.program.period_steps) & (number < visit.steps)
        return tf.where(is_one, visit.first + number, NO_TICKET)
