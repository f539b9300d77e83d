"""The closure that a worker runs: steps until the ticket server hands out no more tickets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.program import Program
from tfps.runtime.server_program import ServerProgram
from tfps.runtime.wire import METRICS, OUTPUTS
from tfps.runtime.worker_step import NOT_MEASURED, WorkerStep
from tfps.transport.carrier import Carrier
from tfps.transport.message import Request


class BatchSource(Protocol):
    """Where a worker's batches come from."""

    batch_spec: Any
    is_per_worker: bool  # each worker has batches that no other one can draw

    def argument_specs(self, arguments: Any) -> Any:
        """What the closure is traced with, from this source's arguments of a round."""

    def bind(self, arguments: Any, slot: int) -> Any:
        """One worker's arguments."""

    def fetch(
        self, arguments: Any, *, ticket: tf.Tensor, position: tf.Tensor, incarnation: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        """Traced on the worker: (whether there is one, the batch of a ticket)."""

    def examples(self, batch: Any) -> tf.Tensor:
        """How many examples a batch holds."""

    def settle(self) -> None:
        """Called while no closure runs: every ticket that was handed out is closed."""


class WorkerLoop:
    """Compiles a program into one tf.function for workers.

    The loop's variables are small: the ticket, the batch, the versions, and the report of the
    last step, which the next push closes. Parameters stay in resources on the worker.

    Args:
        program: the step.
        servers: the program's functions on each server.
        carrier: brings requests to them.
        job_id: goes into every message.
    """

    def __init__(
        self, program: Program, *, servers: Sequence[ServerProgram], carrier: Carrier, job_id: int
    ) -> None:
        self.program, self.servers, self.carrier, self.job_id = program, servers, carrier, job_id

    def compile(self, source: BatchSource) -> Any:
        """A tf.function of (control, seeds, *source arguments) that answers (steps, statuses).

        ``control`` is an int64 vector: slot, incarnation, first ticket of the round.
        """

        @tf.function(autograph=False)
        def closure(control: tf.Tensor, seeds: tf.Tensor, arguments: Any) -> tf.Tensor:
            return self._trace(source, control, seeds, arguments)

        return closure

    def _trace(
        self, source: BatchSource, control: tf.Tensor, seeds: tf.Tensor, arguments: Any
    ) -> tf.Tensor:
        slot, incarnation, first = control[0], control[1], control[2]
        step = WorkerStep(
            self.program,
            servers=self.servers,
            carrier=self.carrier,
            job_id=self.job_id,
            slot=slot,
            incarnation=incarnation,
        )
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            ticket = step.join()
        with tf.control_dependencies([ticket, *step.versions]):
            pull_microseconds = tf.cast((tf.timestamp() - begin) * 1e6, tf.int64)
        spec = source.batch_spec
        flat_specs = tf.nest.flatten(spec, expand_composites=True)

        def fetch(ticket: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor]:
            with tf.control_dependencies([ticket]):
                asked = tf.timestamp()
            with tf.control_dependencies([asked]):
                there, batch = source.fetch(
                    arguments, ticket=ticket, position=ticket - first, incarnation=incarnation
                )
            flat = tf.nest.flatten(batch, expand_composites=True)
            with tf.control_dependencies([there, *flat]):
                waited = tf.cast((tf.timestamp() - asked) * 1e6, tf.int64)
            return tf.logical_and(ticket >= 0, there), flat, waited

        there, flat_batch, waited = fetch(ticket)
        empty = step.empty_report()
        state = {
            "ticket": ticket,
            "there": there,
            "batch": flat_batch,
            "versions": tf.stack(step.versions),
            "metrics": empty[METRICS],
            "outputs": empty[OUTPUTS],
            "closes": tf.constant(NO_TICKET, tf.int64),
            "examples": tf.constant(0, tf.int64),
            "push": tf.constant(NOT_MEASURED, tf.int64),
            "pull": pull_microseconds,
            "wait": waited,
            "steps": tf.constant(0, tf.int64),
        }

        def fields_of(state: dict[str, Any]) -> dict[Request, tf.Tensor]:
            return {
                Request.CLOSES: state["closes"],
                Request.EXAMPLES: state["examples"],
                Request.PUSH_MICROSECONDS: state["push"],
                Request.PULL_MICROSECONDS: state["pull"],
                Request.WAIT_MICROSECONDS: state["wait"],
            }

        def body(state: dict[str, Any]) -> tuple[dict[str, Any]]:
            ticket = state["ticket"]
            batch = tf.nest.pack_sequence_as(spec, state["batch"], expand_composites=True)
            report = step.run(
                batch,
                ticket=ticket,
                seeds=self._seeds(seeds, ticket - first),
                versions=state["versions"],
                report={METRICS: state["metrics"], OUTPUTS: state["outputs"]},
                fields=fields_of(state),
            )
            if self.program.trains:
                next_ticket, push = step.next_ticket, step.push_microseconds
                closes = tf.where(step.accepted, ticket, NO_TICKET)
                examples = source.examples(batch)
            else:
                next_ticket = step.finish(ticket, report)
                closes, push, examples = state["closes"], state["push"], state["examples"]
            there, flat_batch, waited = fetch(next_ticket)
            return (
                {
                    "ticket": next_ticket,
                    "there": there,
                    "batch": flat_batch,
                    "versions": tf.stack(step.versions),
                    "metrics": report[METRICS],
                    "outputs": report[OUTPUTS],
                    "closes": closes,
                    "examples": examples,
                    "push": push,
                    "pull": tf.constant(NOT_MEASURED, tf.int64),
                    "wait": waited,
                    "steps": state["steps"] + 1,
                },
            )

        invariants = tf.nest.map_structure(lambda tensor: tensor.shape, state)
        invariants["batch"] = [component.shape for component in flat_specs]
        (state,) = tf.while_loop(
            lambda state: state["there"],
            body,
            (state,),
            shape_invariants=(invariants,),
            parallel_iterations=1,
        )
        step.versions = tf.unstack(state["versions"], num=len(self.servers))
        report = {METRICS: state["metrics"], OUTPUTS: state["outputs"]}
        statuses = step.leave(report, fields_of(state))
        return tf.stack([state["steps"], *statuses])

    def _seeds(self, seeds: tf.Tensor, position: tf.Tensor) -> list[tf.Tensor]:
        """Each generator's state at a ticket: Keras's own stream, wherever the ticket runs."""
        states = []
        for index, draws in enumerate(self.program.draws_per_step):
            states.append(tf.stack([seeds[index, 0], seeds[index, 1] + position * draws]))
        return states


def slot_control(slot: int, incarnation: int, first_ticket: int) -> tf.Tensor:
    """The control vector of a closure."""
    return tf.constant([slot, incarnation, first_ticket], tf.int64)
