"""Describes one run of a worker's closure, and fetches its batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from tfps.bridge.functions.chief_constant import chief_constant
from tfps.consistency.shard_book import ShardBook
from tfps.runtime.message.duration import measure_microseconds
from tfps.runtime.message.request_header import Fields
from tfps.transport.message import Request

State: TypeAlias = dict[str, Any]  # the state of a loop


class BatchClaim(NamedTuple):
    """A worker's request for a batch, made with a ticket."""

    ticket: tf.Tensor  # or `NO_TICKET`
    position: tf.Tensor  # the position of the ticket in its ticket run
    incarnation: tf.Tensor  # the incarnation of the worker
    returns_ticket: bool  # whether the ticket goes back if there is no batch; not within a period


class BatchSource(ABC):
    """The base class of sources of a worker's batches."""

    batch_spec: Any
    is_per_worker = False  # each worker has batches that no other one can draw
    may_widen_spec = False  # the spec is read when a step is traced, and by nothing built before
    next_pass = 0  # the number of the pass that begins next
    begins_anew = ""  # why another process cannot go on within a pass; empty: it can

    @property
    def shard_leases(self) -> ShardBook | None:
        """The record of data shards leased in this pass over the data; None without leases."""
        return None

    @property
    def failure(self) -> Exception | None:
        """The error that the data raised on the chief, or None."""
        return None

    @property
    def input_graphs(self) -> Sequence[Any]:
        """The graphs of its functions, to find the line that made a failing operation."""
        return ()

    @property
    @abstractmethod
    def description(self) -> str:
        """A text that describes how batches reach the workers."""

    @abstractmethod
    def trace_key(self) -> Hashable:
        """Return a key that is equal for inputs that share a traced closure."""

    @abstractmethod
    def new_pass(self) -> Any:
        """Begin another pass over the data."""

    def skip_passes(self, number: int) -> None:
        """Go on with a pass that another process had begun."""
        self.next_pass = number

    @abstractmethod
    def make_arguments(self, data_pass: Any, offset_steps: int) -> Any:
        """Return the arguments of the closures of a ticket run.

        Args:
            data_pass: the result of `new_pass`.
            offset_steps: the first step of the run in the pass.
        """

    @abstractmethod
    def get_argument_specs(self, arguments: Any) -> Any:
        """Return the specs of a ticket run's arguments, with which the closure is traced."""

    def select_arguments(self, arguments: Any, worker: int) -> Any:
        """Return the arguments of one worker's closure."""
        return arguments

    @abstractmethod
    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        """Trace on the worker: (whether there is a batch, the batch of a ticket)."""

    def on_drained(self) -> None:  # noqa: B027 - most sources keep nothing for a ticket
        """Handle the state in which no closure runs and every issued ticket is closed."""


class ClosureRun:
    """One run of a closure on a worker.

    Args:
        source: the source of batches.
        arguments: the source's arguments for this ticket run and worker.
        seeds: int64 [generators, 2], states at the first ticket of the run. For a generator whose
            number of draws per step is unknown, if there is one worker: at the begin of the run.
        control: see `make_closure_control`.
        peers: the addresses of workers that add up gradients; see `transport.reducer`.
    """

    def __init__(
        self,
        source: BatchSource,
        arguments: Any,
        *,
        seeds: tf.Tensor,
        control: tf.Tensor,
        peers: tf.Tensor | None = None,
    ) -> None:
        self.peers, self.source, self._arguments, self._seeds = peers, source, arguments, seeds
        # Whether the loss of the latest traced step was finite; None if training does not stop at
        # NaN.
        self.is_finite: tf.Tensor | None = None
        self.worker, self.incarnation, self.first, self.steps, self.has_run_before = tf.unstack(
            control
        )

    @property
    def seed(self) -> tf.Tensor:
        """The seed of the model's first generator; 0 if it has none."""
        return self._seeds[0, 0] if self._seeds.shape[0] else tf.constant(0, tf.int64)

    @property
    def identity(self) -> Fields:
        """Header fields that name the worker in every request."""
        return {Request.WORKER: self.worker, Request.INCARNATION: self.incarnation}

    def fetch(self, ticket: tf.Tensor, *, returns_ticket: bool = True) -> State:
        """Fetch the batch of a ticket; return the part of a loop's state with the batch."""
        with tf.control_dependencies([ticket]):
            asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            claim = BatchClaim(ticket, ticket - self.first, self.incarnation, returns_ticket)
            has_batch, batch = self.source.fetch(self._arguments, claim)
        flat = tf.nest.flatten(batch, expand_composites=True)
        waited = measure_microseconds(asked, until=[has_batch, *flat])
        has_batch = tf.logical_and(ticket >= 0, has_batch)
        state = {"ticket": ticket, "has_batch": has_batch, "batch": flat, "wait": waited}
        if self.is_finite is not None:
            state["has_batch"] = tf.logical_and(has_batch, self.is_finite)
            state["is_finite"] = self.is_finite
        return state

    def take_finite_flag(self, state: State) -> None:
        """Set `is_finite` from a loop's state."""
        self.is_finite = state.get("is_finite")

    def batch(self, state: State) -> Any:
        """Return the batch of a state."""
        return tf.nest.pack_sequence_as(
            self.source.batch_spec, state["batch"], expand_composites=True
        )

    def compute_seed_states(
        self, ticket: tf.Tensor, draws_per_step: Sequence[int | None]
    ) -> list[tf.Tensor]:
        """Return the state of each seed generator at a ticket, as far as it is known."""
        position = ticket - self.first
        return [
            tf.stack([self._seeds[index, 0], self._seeds[index, 1] + position * (draws or 0)])
            for index, draws in enumerate(draws_per_step)
        ]

    def loop(self, body: Callable[[State], State], state: State) -> State:
        """Trace a loop of ``body`` while its state has a batch; batches may differ in size."""
        specs = tf.nest.flatten(self.source.batch_spec, expand_composites=True)
        invariants = tf.nest.map_structure(lambda tensor: tensor.shape, state)
        invariants["batch"] = [component.shape for component in specs]
        (state,) = tf.while_loop(
            lambda state: state["has_batch"],
            lambda state: (body(state),),
            (state,),
            shape_invariants=(invariants,),
            parallel_iterations=1,
        )
        return state


def make_closure_control(
    worker: int, incarnation: int, first_ticket: int, steps: int, *, has_run_before: bool = False
) -> tf.Tensor:
    """Make the control vector of a closure: worker, incarnation, and steps of its ticket run.

    ``has_run_before`` says that the worker has run the closure before: then its join takes a usual
    time.
    """
    return chief_constant([worker, incarnation, first_ticket, steps, int(has_run_before)], tf.int64)
