"""Training of `fit` with several batches between two exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.message.request_header import NOT_MEASURED
from tfps.runtime.message.wire import METRICS, OUTPUTS
from tfps.runtime.worker.fit_loop import FitLoop, Visit, fields_of
from tfps.runtime.worker.fit_step import FitStep
from tfps.runtime.worker.step_report import empty_report
from tfps.transport.message import Request


class PeriodStep(FitStep):
    """Traces the steps between two exchanges.

    What the steps write themselves stays in the worker's copies until the exchange.
    """

    def __init__(self, program: Any, **options: Any) -> None:
        super().__init__(program, **options)
        self._at_begin: dict[int, tf.Tensor] = {}  # of the period

    def prepare(self) -> None:
        """Once, when the worker has joined."""

    def begin_period(self) -> None:
        """Note what the exchange at the period's end sends the difference to."""
        counted = [v for v in self.program.state if v._value.dtype.is_integer]
        self._at_begin = {id(v): tf.identity(self.copies.read(v)) for v in counted}

    def nothing_gathered(self) -> dict[str, tf.Tensor]:
        """What a period begins with that is gathered beside the worker's copies."""
        return {}

    def gather(
        self, gathered: dict[str, tf.Tensor], *, examples: tf.Tensor, total: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Add the step that was traced last.

        Args:
            gathered: by the steps before it.
            examples: of its batch.
            total: examples of the period, with these.
        """
        return gathered

    def run(self, batch: Any, **options: Any) -> dict[str, tf.Tensor]:
        report = super().run(batch, **options)
        if len(self.copies) > 1:
            for variable in self.program.state:
                before = self._before.get(id(variable))
                value = self.copies.together(variable, before=before, shares=self.shares)
                self.copies.load(variable, value)
        return report

    def end_period(
        self,
        gathered: Mapping[str, tf.Tensor],
        *,
        ticket: tf.Tensor,
        versions: tf.Tensor,
        report: Mapping[str, tf.Tensor],
        fields: Mapping[Request, tf.Tensor],
    ) -> None:
        """Send what has come of a period and take over what the servers have.

        Args:
            gathered: by its steps.
            ticket: of the period.
            versions: by server, that the period began with.
            report: of the period before.
            fields: header fields about the period before, and this one's number of examples.
        """
        self.begin(ticket, versions=versions, report=report, fields=fields)
        self.send_gathered(gathered)

    def send_gathered(self, gathered: Mapping[str, tf.Tensor]) -> None:
        """The one exchange of the period."""
        raise NotImplementedError

    def _new_state(self, variable: Any) -> tf.Tensor:
        value = self.copies.read(variable)
        return value - self._at_begin[id(variable)] if value.dtype.is_integer else value


class PeriodLoop(FitLoop):
    """One ticket of the servers is the right to one period: some batches, and an exchange.

    A period is shorter where the data end within it.
    """

    def ticket_of(
        self, visit: Visit, period: tf.Tensor, *, batches: tf.Tensor, step: tf.Tensor
    ) -> tf.Tensor:
        """The ticket of a period's step, as data and seeds go by it; `NO_TICKET` behind its end.

        Args:
            visit: of the worker.
            period: the ticket of the servers.
            batches: that came with it.
            step: in the period, from 0.
        """
        raise NotImplementedError

    def fields_about(
        self, begin: tf.Tensor, *, state: dict[str, Any], done: dict[str, Any]
    ) -> dict[Request, tf.Tensor]:
        """What the push says of its own period, beside the number of examples.

        Args:
            begin: a timestamp from before its first step.
            state: of the loop when it began.
            done: by its steps.
        """
        return {}

    def begin(self, step: PeriodStep, visit: Visit, ticket: tf.Tensor) -> dict[str, Any]:
        step.prepare()
        return self._first_of(visit, ticket, step.next_batches)

    def take_steps(self, step: PeriodStep, visit: Visit, state: dict[str, Any]) -> dict[str, Any]:
        def period(state: dict[str, Any]) -> tuple[dict[str, Any]]:
            begin = tf.timestamp()
            with tf.control_dependencies([begin]):
                step.begin_period()
                done = self._train(step, visit, state)
            step.end_period(
                done["gathered"],
                ticket=state["period"],
                versions=state["versions"],
                report={METRICS: state["metrics"], OUTPUTS: state["outputs"]},
                fields={
                    **fields_of(state),
                    Request.STEP_EXAMPLES: done["examples"],
                    **self.fields_about(begin, state=state, done=done),
                },
            )
            return (
                {
                    **self._first_of(visit, step.next_ticket, step.next_batches),
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

    def _train(self, step: PeriodStep, visit: Visit, state: dict[str, Any]) -> dict[str, Any]:
        """The steps of a period; answers what they report together, and have gathered."""
        nothing = empty_report(self.program)
        begin = {
            **{key: state[key] for key in ("ticket", "there", "batch", "wait")},
            "metrics": tf.constant(self.program.totals.empty),
            "outputs": nothing[OUTPUTS],
            "examples": tf.constant(0, tf.int64),
            "steps": tf.constant(0, tf.int64),
            "gathered": step.nothing_gathered(),
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
            examples = visit.source.examples(batch)
            total = now["examples"] + examples
            gathered = step.gather(now["gathered"], examples=examples, total=total)
            # The next batch comes after the step, as everywhere.
            with tf.control_dependencies([*report.values(), *gathered.values()]):
                ticket = self.ticket_of(
                    visit, state["period"], batches=state["batches"], step=steps
                )
            return (
                {
                    **visit.fetch(ticket, goes_back=False),
                    "metrics": self.program.totals.combine(now["metrics"], report[METRICS]),
                    "outputs": report[OUTPUTS],
                    "examples": total,
                    "steps": steps,
                    "gathered": gathered,
                },
            )

        return visit.loop(lambda now: now["there"], body, begin)

    def _first_of(self, visit: Visit, period: tf.Tensor, batches: tf.Tensor) -> dict[str, Any]:
        """The part of a loop's state that belongs to a period: itself, and its first batch."""
        step = tf.constant(0, tf.int64)
        ticket = self.ticket_of(visit, period, batches=batches, step=step)
        return {"period": period, "batches": batches, **visit.fetch(ticket)}
