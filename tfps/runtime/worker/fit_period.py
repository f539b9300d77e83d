"""Traces the training of `fit` with several batches between two exchanges."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfps.runtime.message.wire import METRICS
from tfps.runtime.program.examples import count_examples
from tfps.runtime.program.program import Program
from tfps.runtime.worker.closure_run import State
from tfps.runtime.worker.fit_loop import FitLoop, make_next_fields
from tfps.runtime.worker.fit_step import FitStep
from tfps.runtime.worker.step_report import empty_report
from tfps.transport.message import Request

_TICKET_KEYS = ("ticket", "has_batch", "batch", "wait", "is_finite")


class PeriodStep(FitStep):
    """Traces the steps between two exchanges.

    State that the steps assign stays in the worker's copies until the exchange.
    """

    is_single_step = False
    _at_begin: dict[int, tf.Tensor]  # the values of variables at the period's begin

    def compute_ticket(
        self, period: tf.Tensor, step: tf.Tensor, *, batches: tf.Tensor
    ) -> tf.Tensor:
        """Compute the ticket of a period's step, for data and seeds; `NO_TICKET` after its end.

        Args:
            period: the ticket that the servers have issued.
            step: the index of the step in the period, from 0.
            batches: the number of tickets that the servers have issued.
        """
        raise NotImplementedError

    def begin_period(self) -> None:
        """Record the values from which the exchange at the period's end computes differences."""
        self._at_begin = {id(v): tf.identity(self.copies.read(v)) for v in self.program.state}
        self.kept.begin()

    def create_gathered(self) -> dict[str, tf.Tensor]:
        """Return the tensors with which `gather` begins a period."""
        return {}

    def gather(
        self, gathered: dict[str, tf.Tensor], *, examples: tf.Tensor, total: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Add the latest traced step to the gathered tensors; ``total`` includes its examples."""
        return gathered

    def run(self, batch: Any) -> dict[str, tf.Tensor]:
        report = super().run(batch)
        if len(self.copies) > 1:
            self.copies.merge_into_all(self.program.state, self._before, self.shares)
        return report

    def end_period(self, done: State, *, begin: tf.Tensor, waited: tf.Tensor) -> None:
        """Trace the exchange at the end of the period."""
        raise NotImplementedError

    def read_before(self, variable: Any) -> tf.Tensor:
        return self._at_begin[id(variable)]

    def read_state(self, variable: Any) -> tf.Tensor:
        return self.copies.read(variable)


class PeriodLoop(FitLoop[PeriodStep]):
    """Traces periods: for one ticket of the servers, a worker takes some batches and one exchange.

    A period is shorter if the data end within it.
    """

    def fetch_granted(self, step: PeriodStep) -> State:
        period, batches = step.replies.next_ticket, step.replies.next_batches
        ticket = step.compute_ticket(period, tf.constant(0, tf.int64), batches=batches)
        return {"period": period, "batches": batches, **step.closure_run.fetch(ticket)}

    def take_steps(self, step: PeriodStep, state: State) -> State:
        def period(state: State) -> State:
            ticket, begin = state["period"], tf.timestamp()
            with tf.control_dependencies([begin]):
                step.begin_period()
                done = self._trace_period(step, state)
            examples = done["examples"]
            step.begin(ticket, state, extra_fields={Request.STEP_EXAMPLES: examples})
            step.end_period(done, begin=begin, waited=state["wait"])
            fields = make_next_fields(state, step.replies, ticket=ticket, examples=examples)
            step.closure_run.take_finite_flag(done)
            return {
                **self.fetch_granted(step),
                "versions": tf.stack(step.versions),
                "replied_s": step.replies.replied_s,
                "report": done["report"],
                "fields": {
                    **fields,
                    Request.CLOSED_STEPS: done["steps"],
                    Request.BATCH_MICROSECONDS: step.replies.own_microseconds // done["steps"],
                },
                "steps": state["steps"] + done["steps"],
            }

        return step.closure_run.loop(period, state)

    def _trace_period(self, step: PeriodStep, state: State) -> State:
        """Trace the steps of a period; return a state with their joint report."""
        closure_run, totals = step.closure_run, self.program.totals
        begin = {
            **{key: state[key] for key in _TICKET_KEYS if key in state},
            "report": state["report"] if totals.is_sequential else _make_empty_report(self.program),
            "examples": tf.constant(0, tf.int64),
            "steps": tf.constant(0, tf.int64),
            "gathered": step.create_gathered(),
        }

        def body(now: State) -> State:
            batch, steps = closure_run.batch(now), now["steps"] + 1
            step.begin(now["ticket"], {**state, "report": now["report"]})
            report = step.run(batch)
            examples = count_examples(batch)
            total = now["examples"] + examples
            gathered = step.gather(now["gathered"], examples=examples, total=total)
            # The next batch is fetched after the step, as in other loops.
            with tf.control_dependencies([*report.values(), *gathered.values()]):
                ticket = step.compute_ticket(state["period"], steps, batches=state["batches"])
            return {
                **closure_run.fetch(ticket, returns_ticket=False),
                "report": {
                    **report,
                    METRICS: totals.combine(now["report"][METRICS], report[METRICS]),
                },
                "examples": total,
                "steps": steps,
                "gathered": gathered,
            }

        return closure_run.loop(body, begin)


def _make_empty_report(program: Program) -> dict[str, tf.Tensor]:
    """Make the report of a period before its first step."""
    return {**empty_report(program), METRICS: tf.constant(program.totals.empty_total)}
