"""Traces the training of `fit` with several batches between two exchanges."""

from __future__ import annotations

import tensorflow as tf

from tfps.runtime.message.wire import METRICS
from tfps.runtime.program.examples import count_examples
from tfps.runtime.program.program import Program
from tfps.runtime.worker.closure_run import State
from tfps.runtime.worker.fit_local import LocalStep
from tfps.runtime.worker.fit_loop import FitLoop, make_next_fields
from tfps.runtime.worker.step_report import empty_report
from tfps.transport.message import Request

_TICKET_KEYS = ("ticket", "has_batch", "batch", "wait", "is_finite")


class PeriodLoop(FitLoop[LocalStep]):
    """Traces periods: for one ticket of the servers, a worker takes some batches and one exchange.

    A period is shorter if the data end within it.
    """

    def fetch_granted(self, step: LocalStep) -> State:
        period = step.replies.next_ticket
        ticket = step.compute_ticket(period, tf.constant(0, tf.int64))
        return {"period": period, **step.closure_run.fetch(ticket)}

    def take_steps(self, step: LocalStep, state: State) -> State:
        def period(state: State) -> State:
            ticket = state["period"]
            step.begin_period()
            done = self._trace_period(step, state)
            examples = done["examples"]
            step.begin(ticket, state, extra_fields={Request.STEP_EXAMPLES: examples})
            step.exchange(0, step.compute_changes())
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

    def _trace_period(self, step: LocalStep, state: State) -> State:
        """Trace the steps of a period; return a state with their joint report."""
        closure_run, totals = step.closure_run, self.program.totals
        begin = {
            **{key: state[key] for key in _TICKET_KEYS if key in state},
            "report": state["report"] if totals.is_sequential else _make_empty_report(self.program),
            "examples": tf.constant(0, tf.int64),
            "steps": tf.constant(0, tf.int64),
        }

        def body(now: State) -> State:
            batch, steps = closure_run.batch(now), now["steps"] + 1
            step.begin(now["ticket"], {**state, "report": now["report"]})
            report = step.run(batch)
            examples = count_examples(batch)
            # The next batch is fetched after the step, as in other loops.
            with tf.control_dependencies(report.values()):
                ticket = step.compute_ticket(state["period"], steps)
            return {
                **closure_run.fetch(ticket, returns_ticket=False),
                "report": {
                    **report,
                    METRICS: totals.combine(now["report"][METRICS], report[METRICS]),
                },
                "examples": now["examples"] + examples,
                "steps": steps,
            }

        return closure_run.loop(body, begin)


def _make_empty_report(program: Program) -> dict[str, tf.Tensor]:
    """Make the report of a period before its first step."""
    return {**empty_report(program), METRICS: tf.constant(program.totals.empty_total)}
