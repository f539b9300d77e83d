"""The closure that a worker runs: steps until the ticket server hands out no more tickets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.bridge.chief_constant import chief_constant
from tfps.consistency.ledger import NO_TICKET
from tfps.consistency.shard_book import ShardBook
from tfps.runtime.message.request_header import NOT_MEASURED
from tfps.runtime.message.wire import METRICS, OUTPUTS
from tfps.runtime.program.program import Program
from tfps.runtime.server.fit_half import FitHalf
from tfps.runtime.worker.exchange import microseconds
from tfps.runtime.worker.fit_step import FitStep
from tfps.runtime.worker.step_report import empty_report
from tfps.transport.carrier import Carrier
from tfps.transport.message import Request


class BatchClaim(NamedTuple):
    """What a worker asks for when it has a ticket."""

    ticket: tf.Tensor  # or `NO_TICKET`
    position: tf.Tensor  # of the ticket in its round
    incarnation: tf.Tensor  # of the worker
    # Whether the ticket goes back if there is no batch: not within a period that goes on.
    goes_back: bool


class BatchSource(Protocol):
    """Where a worker's batches come from."""

    batch_spec: Any
    is_per_worker: bool  # each worker has batches that no other one can draw
    shards: ShardBook | None  # of the pass at hand, if its batches are leased to workers
    input_graphs: Sequence[Any]  # of its functions, to say which line made an operation that fails

    def argument_specs(self, arguments: Any) -> Any:
        """What the closure is traced with, from this source's arguments of a round."""

    def bind(self, arguments: Any, worker: int) -> Any:
        """One worker's arguments."""

    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        """Traced on the worker: (whether there is one, the batch of a ticket)."""

    def examples(self, batch: Any) -> tf.Tensor:
        """How many examples a batch holds."""

    def on_drained(self) -> None:
        """Called while no closure runs: every ticket that was handed out is closed."""


class FitLoop:
    """Compiles a program into one tf.function for workers.

    The loop's variables are small: the ticket, the batch, the versions, and the report of the
    last step, which the next push closes. Parameters stay in resources on the worker.

    Args:
        program: the step.
        servers: the program's functions on each server.
        carrier: brings requests to them.
    """

    def __init__(self, program: Program, *, servers: Sequence[FitHalf], carrier: Carrier) -> None:
        self.program, self.servers, self.carrier = program, servers, carrier

    def compile(self, source: BatchSource) -> Any:
        """A tf.function of (control, seeds, *source arguments) that answers (steps, statuses).

        ``control`` is an int64 vector; `closure_control` makes it.
        """

        @tf.function(autograph=False)
        def closure(control: tf.Tensor, seeds: tf.Tensor, arguments: Any) -> tf.Tensor:
            return self._trace(source, control, seeds, arguments)

        return closure

    def _trace(
        self, source: BatchSource, control: tf.Tensor, seeds: tf.Tensor, arguments: Any
    ) -> tf.Tensor:
        worker, incarnation, first = control[0], control[1], control[2]
        step = self.make_step(
            self.program,
            servers=self.servers,
            carrier=self.carrier,
            worker=worker,
            incarnation=incarnation,
        )
        step.first = first
        visit = Visit(source, arguments, seeds=seeds, control=control)
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            ticket = step.join()
        pull_microseconds = tf.constant(NOT_MEASURED, tf.int64)
        if self.program.trains:  # the first join of a worker connects, and prepares the functions
            took = microseconds(begin, until=[ticket, *step.versions])
            pull_microseconds = tf.where(control[4] > 0, took, pull_microseconds)
        empty = empty_report(self.program)
        state = {
            **self.begin(step, visit, ticket),
            "versions": tf.stack(step.versions),
            "metrics": empty[METRICS],
            "outputs": empty[OUTPUTS],
            "closes": tf.constant(NO_TICKET, tf.int64),
            "closed_steps": tf.constant(1, tf.int64),
            "examples": tf.constant(0, tf.int64),
            "push": tf.constant(NOT_MEASURED, tf.int64),
            "pull": pull_microseconds,
            "steps": tf.constant(0, tf.int64),
        }
        state = self.take_steps(step, visit, state)
        step.versions = tf.unstack(state["versions"], num=len(self.servers))
        report = {METRICS: state["metrics"], OUTPUTS: state["outputs"]}
        statuses = step.leave(report, fields_of(state))
        return tf.stack([state["steps"], *statuses])

    def make_step(self, program: Program, **options: Any) -> Any:
        """What traces the steps of a closure."""
        return FitStep(program, **options)

    def begin(self, step: Any, visit: Visit, ticket: tf.Tensor) -> dict[str, Any]:
        """What a loop's state begins with, once the worker has joined."""
        return visit.fetch(ticket)

    def take_steps(self, step: Any, visit: Visit, state: dict[str, Any]) -> dict[str, Any]:
        """Steps until there is no ticket or no batch left."""

        def body(state: dict[str, Any]) -> tuple[dict[str, Any]]:
            ticket, batch = state["ticket"], visit.batch(state)
            examples = visit.source.examples(batch)
            report = step.run(
                batch,
                ticket=ticket,
                seeds=visit.seed_states(ticket, self.program.draws_per_step),
                versions=state["versions"],
                report={METRICS: state["metrics"], OUTPUTS: state["outputs"]},
                fields={
                    **fields_of(state),
                    Request.STEP_EXAMPLES: examples,
                    Request.CLOCK: step.clock + state["steps"],
                },
            )
            if self.program.trains:
                next_ticket, push = step.next_ticket, step.push_microseconds
                acked_ticket = tf.where(step.accepted, ticket, NO_TICKET)
            else:
                next_ticket = step.finish(ticket, report)
                acked_ticket, push, examples = state["closes"], state["push"], state["examples"]
            return (
                {
                    **visit.fetch(next_ticket),
                    "versions": tf.stack(step.versions),
                    "metrics": report[METRICS],
                    "outputs": report[OUTPUTS],
                    "closes": acked_ticket,
                    "closed_steps": state["closed_steps"],
                    "examples": examples,
                    "push": push,
                    "pull": tf.constant(NOT_MEASURED, tf.int64),
                    "steps": state["steps"] + 1,
                },
            )

        return visit.loop(lambda state: state["there"], body, state)


class Visit:
    """One run of a closure: how it gets batches, and the random states that belong to tickets.

    Args:
        source: where batches come from.
        arguments: of this round and worker.
        seeds: int64 [generators, 2], at the round's first ticket.
        control: of this closure; see `closure_control`.
    """

    def __init__(
        self,
        source: BatchSource,
        arguments: Any,
        *,
        seeds: tf.Tensor,
        control: tf.Tensor,
    ) -> None:
        self.source, self._arguments, self._seeds = source, arguments, seeds
        self._incarnation, self.first, self.steps = control[1], control[2], control[3]

    def fetch(self, ticket: tf.Tensor, *, goes_back: bool = True) -> dict[str, Any]:
        """The part of a loop's state that belongs to a ticket: its batch, if there is one."""
        with tf.control_dependencies([ticket]):
            asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            claim = BatchClaim(ticket, ticket - self.first, self._incarnation, goes_back)
            there, batch = self.source.fetch(self._arguments, claim)
        flat = tf.nest.flatten(batch, expand_composites=True)
        waited = microseconds(asked, until=[there, *flat])
        there = tf.logical_and(ticket >= 0, there)
        return {"ticket": ticket, "there": there, "batch": flat, "wait": waited}

    def batch(self, state: Mapping[str, Any]) -> Any:
        """The batch of a state."""
        return tf.nest.pack_sequence_as(
            self.source.batch_spec, state["batch"], expand_composites=True
        )

    def seed_states(self, ticket: tf.Tensor, draws_per_step: Sequence[int]) -> list[tf.Tensor]:
        """Each generator's state at a ticket: Keras's own stream, wherever the ticket runs."""
        position = ticket - self.first
        return [
            tf.stack([self._seeds[index, 0], self._seeds[index, 1] + position * draws])
            for index, draws in enumerate(draws_per_step)
        ]

    def loop(self, condition: Any, body: Any, state: dict[str, Any]) -> dict[str, Any]:
        """`tf.while_loop` over a state, whose batches may differ in length."""
        specs = tf.nest.flatten(self.source.batch_spec, expand_composites=True)
        invariants = tf.nest.map_structure(lambda tensor: tensor.shape, state)
        invariants["batch"] = [component.shape for component in specs]
        (state,) = tf.while_loop(
            condition, body, (state,), shape_invariants=(invariants,), parallel_iterations=1
        )
        return state


def fields_of(state: Mapping[str, Any]) -> dict[Request, tf.Tensor]:
    """What a request says about the step before."""
    return {
        Request.ACKED_TICKET: state["closes"],
        Request.CLOSED_STEPS: state["closed_steps"],
        Request.EXAMPLES: state["examples"],
        Request.PUSH_MICROSECONDS: state["push"],
        Request.PULL_MICROSECONDS: state["pull"],
        Request.WAIT_MICROSECONDS: state["wait"],
    }


def closure_control(
    worker: int, incarnation: int, first_ticket: int, steps: int, *, knows_it: bool = False
) -> tf.Tensor:
    """The control vector of a closure: who runs it, as whom, and which steps its round has.

    Args:
        worker: of the worker.
        incarnation: of the worker.
        first_ticket: of the round.
        steps: of the round.
        knows_it: whether the worker has run the closure before, so that its join is typical.
    """
    return chief_constant([worker, incarnation, first_ticket, steps, int(knows_it)], tf.int64)
