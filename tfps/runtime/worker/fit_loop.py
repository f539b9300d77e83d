"""Traces the closure that a worker runs: steps until there are no more tickets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.message.duration import measure_microseconds, take_timestamp_after
from tfps.runtime.message.request_header import NOT_MEASURED, Fields
from tfps.runtime.program.examples import count_examples
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.closure_run import BatchSource, ClosureRun, State
from tfps.runtime.worker.exchange import ServerReplies
from tfps.runtime.worker.executor_choice import choose_executor
from tfps.runtime.worker.fit_step import FitStep
from tfps.runtime.worker.graph_facts import read_graph_facts
from tfps.runtime.worker.step_report import SERIALIZED
from tfps.transport.carrier import Carrier
from tfps.transport.message import Request

S = TypeVar("S", bound=FitStep)


class FitLoop(Generic[S]):
    """Compiles a program into one tf.function for workers.

    The loop's variables are small: the ticket, the batch, the versions, and the report of the
    last step, which the next push closes. Parameters stay in resources on the worker.
    """

    def __init__(self, step: type[S], servers: Sequence[FitHalf], *, carrier: Carrier) -> None:
        self._step, self.servers, self._carrier = step, servers, carrier
        self.program = servers[0].program

    def compile(self, source: BatchSource) -> Any:
        """Return a tf.function from (control, seeds, *source arguments) to (steps, statuses).

        ``control`` is an int64 vector; `closure_control` makes it.
        """

        @tf.function(autograph=False)
        def closure(control: tf.Tensor, seeds: tf.Tensor, arguments: Any) -> list[tf.Tensor]:
            traced = self._trace(self.start_run(source, arguments, seeds=seeds, control=control))
            self._choose_executor()
            return traced

        return closure

    def start_run(self, source: BatchSource, arguments: Any, **state: tf.Tensor) -> ClosureRun:
        """Return the run of a closure with these arguments."""
        return ClosureRun(source, arguments, **state)

    def _choose_executor(self) -> None:
        """Choose the executor of the graph that is being traced, and prepare the graph for it."""
        graph, program = private.current_graph(), self.program
        threads = tf.config.threading.get_inter_op_parallelism_threads()
        facts = read_graph_facts(
            graph,
            carrier=self._carrier.name,
            is_one_cpu=len(program.devices.names) == 1 and program.devices.use_main_memory,
            chief_threads=threads or os.cpu_count() or 1,
        )
        choice = choose_executor(facts)
        if choice.is_one_thread:
            private.keep_control_flow_functional(graph)
        private.keep_with_graph(choice)

    def _trace(self, closure_run: ClosureRun) -> list[tf.Tensor]:
        step = self._step(self.servers, carrier=self._carrier, closure_run=closure_run)
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            step.join()
        pull_microseconds = tf.constant(NOT_MEASURED, tf.int64)
        if (
            self.program.changes_variables
        ):  # a worker's first join connects, and prepares the functions
            took = measure_microseconds(begin, until=[step.replies.next_ticket, *step.versions])
            pull_microseconds = tf.where(closure_run.has_run_before > 0, took, pull_microseconds)
        state = {
            **self.fetch_granted(step),
            "versions": tf.stack(step.versions),
            "report": step.pull_latest_report(),
            "fields": {
                Request.ACKED_TICKET: tf.constant(NO_TICKET, tf.int64),
                Request.CLOSED_STEPS: tf.constant(1, tf.int64),
                Request.EXAMPLES: tf.constant(0, tf.int64),
                Request.PUSH_MICROSECONDS: tf.constant(NOT_MEASURED, tf.int64),
                Request.PULL_MICROSECONDS: pull_microseconds,
                Request.BATCH_MICROSECONDS: tf.constant(NOT_MEASURED, tf.int64),
                **self._initial_decode_fields,
            },
            "replied_s": take_timestamp_after(step.versions),
            "steps": tf.constant(0, tf.int64),
        }
        state = self.take_steps(step, state)
        step.begin(tf.constant(NO_TICKET, tf.int64), state)
        serialized = [state["report"][SERIALIZED]] if self.program.serialized_outputs else []
        return [tf.stack([state["steps"], *step.leave()]), *serialized]

    @property
    def _initial_decode_fields(self) -> Fields:
        wires = [server.wires[-1] for server in self.servers if server.wires]
        is_coded = self.program.changes_variables and any(wire.coded_values for wire in wires)
        return (
            {Request.DECODE_MICROSECONDS: tf.constant(NOT_MEASURED, tf.int64)} if is_coded else {}
        )

    def fetch_granted(self, step: S) -> State:
        """Fetch the batch of the ticket that the servers have issued.

        Return this part of the loop's state.
        """
        return step.closure_run.fetch(step.replies.next_ticket)

    def take_steps(self, step: S, state: State) -> State:
        """Trace steps until there is no ticket or no batch left."""
        closure_run = step.closure_run

        def body(state: State) -> State:
            ticket, batch = state["ticket"], closure_run.batch(state)
            examples = count_examples(batch)
            clock = step.clock + state["steps"]
            extra_fields = {Request.STEP_EXAMPLES: examples, Request.CLOCK: clock}
            step.begin(ticket, state, extra_fields=extra_fields)
            report = step.run(batch)
            done = {**state, "report": report, "steps": state["steps"] + 1}
            if not self.program.changes_variables:
                return {**done, **closure_run.fetch(step.finish(report))}
            return {
                **done,
                **self.fetch_granted(step),
                "versions": tf.stack(step.versions),
                "replied_s": step.replies.replied_s,
                "fields": make_next_fields(state, step.replies, ticket=ticket, examples=examples),
            }

        return closure_run.loop(body, state)


def make_next_fields(
    state: State, replies: ServerReplies, *, ticket: tf.Tensor, examples: tf.Tensor
) -> Fields:
    """Make the header fields by which the next push reports about a push and its reply."""
    fields = state["fields"]
    coded = {Request.DECODE_MICROSECONDS: replies.decode_microseconds}
    return {
        **fields,
        Request.ACKED_TICKET: tf.where(replies.accepted, ticket, NO_TICKET),
        Request.EXAMPLES: examples,
        Request.PUSH_MICROSECONDS: replies.microseconds,
        Request.PULL_MICROSECONDS: tf.constant(NOT_MEASURED, tf.int64),
        Request.BATCH_MICROSECONDS: replies.own_microseconds,
        **(coded if Request.DECODE_MICROSECONDS in fields else {}),
    }
