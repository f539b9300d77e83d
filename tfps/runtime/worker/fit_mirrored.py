"""Traces steps of `fit` in which workers add up the gradients of mirrored weights themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.consistency.ledger import MAX_CALLS, NO_TICKET, Status
from tfps.runtime.message.duration import (
    measure_microseconds,
    microseconds_between,
    take_timestamp_after,
)
from tfps.runtime.message.payload import Body, decode_values
from tfps.runtime.message.request_header import SLOTS, Fields
from tfps.runtime.message.wire import get_gradient_name, get_variable_name
from tfps.runtime.worker.closure_run import BatchSource, ClosureRun, State
from tfps.runtime.worker.exchange import ServerReplies, get_payloads
from tfps.runtime.worker.fit_loop import FitLoop
from tfps.runtime.worker.fit_step import FitStep
from tfps.runtime.worker.mirrored_copies import MirroredCopies
from tfps.runtime.worker.weight_sums import Group, WeightSums
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply, Request
from tfps.transport.packing import pack

NO_INCARNATION = -1  # known to no server: the worker's requests count no more


class MirroredStep(FitStep):
    """Traces steps that update the worker's copies of mirrored weights.

    The gradients are added up before the push. The copies change after it, if server 0 has
    completed the round: only then does the round count on all workers, and else on none.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        mirrored = self.program.schedule.mirrored
        assert mirrored is not None
        assert self.closure_run.peers is not None
        self.mirrored = mirrored
        self._sums = WeightSums(
            job_id=self.servers[0].job_id,
            worker=self.closure_run.worker,
            workers=self.servers[0].runtime.max_workers,
            peers=self.closure_run.peers,
        )
        self.own = MirroredCopies(
            self.program,
            copies=self.copies,
            sums=self._sums,
            container=self.servers[0].server.contents.container,
        )
        # The state between steps; set by `begin`.
        self.repeats = tf.constant(0, tf.int64)  # 1 if server 0 has applied the ticket before
        self.is_out = tf.constant(False)  # whether the worker has to join again
        self.updates = tf.constant(0, tf.int64)  # of its copies
        self._examples = tf.constant(0, tf.int64)  # of the step

    @property
    def caller_fields(self) -> Fields:
        fields = super().caller_fields
        unknown = tf.constant(NO_INCARNATION, tf.int64)
        known = tf.where(self.is_out, unknown, fields[Request.INCARNATION])
        return {**fields, Request.INCARNATION: known, Request.UPDATES: self.updates}

    def prepare_to_enter(self, messages: Mapping[int, Message]) -> Sequence[tf.Tensor]:
        # Members of older groups that wait for this worker must join again as well.
        ids = pad_ids(messages[0].ids, 2)
        self.repeats = ids[1]
        return [self._sums.end_older(ids[0])]

    def join(self) -> None:
        super().join()
        self.group = Group.parse(pad_ids(self.replies.ids, 3 + self._sums.workers))
        self.updates, accepted = self.group.updates, self.replies.accepted
        self.has_begun = tf.cond(
            accepted,
            lambda: self.own.begin(self.group, self._pull_slots),
            lambda: tf.constant(False),
        )
        self.is_out = tf.logical_not(self.has_begun)
        none = tf.constant(NO_TICKET, tf.int64)
        ticket = tf.where(self.is_out, none, self.replies.next_ticket)
        self.replies = self.replies._replace(next_ticket=ticket)

    def _pull_slots(self) -> list[tuple[Any, tf.Tensor]]:
        payloads = get_payloads(self.send_requests(Kind.PULL, call_number=SLOTS))
        layouts = [server.slot_layout for server in self.servers]
        return decode_values(layouts, payloads, self.mirrored.slots)

    def begin(self, ticket: tf.Tensor, state: State, **options: Any) -> None:
        super().begin(ticket, state, **options)
        self.repeats, self.is_out = state["repeats"], state["is_out"]
        self.updates = state["updates"]
        self._examples = options.get("extra_fields", {}).get(
            Request.STEP_EXAMPLES, tf.constant(0, tf.int64)
        )

    def run(self, batch: Any) -> dict[str, tf.Tensor]:
        self.own.show_counts()
        return super().run(batch)

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        gradients = [tensors[get_gradient_name(weight)] for weight in self.mirrored.weights]
        counted = tf.where(self.repeats == 1, tf.constant(0, tf.int64), self._examples)
        computed_s = take_timestamp_after(gradients)  # then it waits for all members
        done, self._total, self._means, _ = self.add_up(gradients, counted, holds=1)
        self.fields = {
            **self.fields,
            Request.REDUCE_MICROSECONDS: measure_microseconds(computed_s, until=[done]),
            Request.REDUCED_BYTES: self._sums.count_bytes(self.group, gradients),
            Request.UPDATES: self.updates + tf.cast(self._total > 0, tf.int64),
        }
        self.is_out = tf.logical_or(self.is_out, tf.logical_not(done))
        with tf.control_dependencies([done]):
            super().exchange(call_number, tensors)
        own = microseconds_between(self._replied_s, computed_s)
        self.replies = self.replies._replace(own_microseconds=own)
        self.is_out = tf.logical_or(self.is_out, tf.logical_not(self.replies.accepted))

    def add_up(
        self, gradients: Sequence[tf.Tensor], examples: tf.Tensor, *, holds: int
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor], tf.Tensor]:
        """Add up the gradients of all members, weighted by their examples.

        Returns whether all took part, the number of examples, the means, and how many have a batch.
        """
        weighted = [
            tf.where(examples > 0, each * tf.cast(examples, each.dtype), tf.zeros_like(each))
            for each in gradients
        ]
        counts = tf.stack([examples, tf.constant(holds, tf.int64)])
        done, (totals, *sums) = self._sums.add_up(self.group, [counts, *weighted])
        total = totals[0]
        divisor = tf.maximum(total, 1)
        return done, total, [each / tf.cast(divisor, each.dtype) for each in sums], totals[1]

    def on_push_replies(self, messages: Mapping[int, Message]) -> None:
        self.repeats = pad_ids(messages[0].ids, 1)[0]
        self.take_means(messages, total=self._total, means=self._means)

    def take_means(
        self, messages: Mapping[int, Message], *, total: tf.Tensor, means: Sequence[tf.Tensor]
    ) -> None:
        """Update the copies if server 0 has completed the round, and it has any examples."""
        completed = messages[0].header[Reply.STATUS] <= int(Status.DUPLICATE)

        def update() -> tf.Tensor:
            self.own.update(means, self.updates + 1)
            return tf.constant(1, tf.int64)

        counts = tf.logical_and(completed, total > 0)
        self.updates += tf.cond(counts, update, lambda: tf.constant(0, tf.int64))

    def follow(self, *, total: tf.Tensor, means: Sequence[tf.Tensor]) -> None:
        """Wait, without a ticket, for the round to which others contribute, and update."""
        number = self.versions[0] // MAX_CALLS + 1
        messages = self.send_requests(Kind.AWAIT_ROUND, extra_fields={Request.BASE_VERSION: number})
        self.take_means(messages, total=total, means=means)
        replies = self.rounds.complete(ServerReplies.from_replies(messages))
        last = len(self.program.calls) - 1
        self.load(replies.payloads, self.load_newer, call_number=last)
        self.versions = replies.versions
        self.is_out = tf.logical_or(self.is_out, tf.logical_not(replies.accepted))

    def finish_group(self) -> tf.Tensor:
        """Let the first member write the copies to the servers, if the group ends well.

        Returns a tensor that follows.
        """
        is_first = tf.argmax(self.group.members) == self.closure_run.worker
        writes = tf.logical_and(is_first, tf.logical_not(self.is_out))
        return tf.cond(writes, self._write_home, lambda: tf.constant(0))

    def _write_home(self) -> tf.Tensor:
        """Write weights and slots to the servers; last to server 0, which records it."""
        values = {
            get_variable_name(variable): self.own.stored[id(variable)].read_value()
            for variable in (*self.mirrored.weights, *self.mirrored.slots)
        }
        bodies = {p: Body(pack(s.home.layout, values)) for p, s in enumerate(self.servers)}
        others = {p: body for p, body in bodies.items() if p}
        written = self.send_requests(Kind.WRITE_BACK, others) if others else {}
        statuses = [message.header[Reply.STATUS] for message in written.values()]
        last = {0: bodies[0]}
        with tf.control_dependencies(statuses):
            told = tf.reduce_all([status == int(Status.OK) for status in statuses])
            return tf.cond(
                told,
                lambda: tf.cast(
                    self.send_requests(Kind.WRITE_BACK, last)[0].header[Reply.STATUS], tf.int32
                ),
                lambda: tf.constant(int(Status.LOST)),
            )


def pad_ids(ids: tf.Tensor, size: int) -> tf.Tensor:
    """Return the ids of a reply in their known number; zeros if no reply came."""
    return tf.concat([ids, tf.zeros([size], tf.int64)], 0)[:size]


class MirroredLoop(FitLoop[MirroredStep]):
    """Takes steps until no member of the group has a batch left.

    A worker without one stays: the others add up their gradients with its zeros.
    """

    def start_run(self, source: BatchSource, arguments: Any, **state: tf.Tensor) -> ClosureRun:
        peers, own = arguments
        return ClosureRun(source, own, peers=peers, **state)

    def fetch_granted(self, step: MirroredStep) -> State:
        with tf.control_dependencies([step.updates]):  # an error of the input finds whole copies
            step.replies = step.replies._replace(next_ticket=tf.identity(step.replies.next_ticket))
        return {
            **super().fetch_granted(step),
            "repeats": step.repeats,
            "is_out": step.is_out,
            "updates": step.updates,
        }

    def take_steps(self, step: MirroredStep, state: State) -> State:
        state = super().take_steps(step, state)
        following = {name: state[name] for name in ("versions", "is_out", "updates")}

        def body(now: State) -> tuple[State]:
            step.begin(tf.constant(NO_TICKET, tf.int64), {**state, **now})
            zeros = [tf.zeros(tuple(w.shape), w._value.dtype) for w in step.mirrored.weights]
            nothing = tf.constant(0, tf.int64)
            done, total, means, holders = step.add_up(zeros, nothing, holds=0)
            goes_on = tf.logical_and(done, holders > 0)
            before = tf.stack(step.versions), tf.logical_not(done), step.updates

            def follow() -> tuple[tf.Tensor, ...]:
                step.follow(total=total, means=means)
                return tf.stack(step.versions), step.is_out, step.updates

            versions, is_out, updates = tf.cond(goes_on, follow, lambda: before)
            after = {"versions": versions, "is_out": is_out, "updates": updates}
            return ({**after, "goes_on": goes_on},)

        (following,) = tf.while_loop(
            lambda now: tf.logical_and(now["goes_on"], tf.logical_not(now["is_out"])),
            body,
            ({**following, "goes_on": tf.constant(True)},),
            parallel_iterations=1,
        )
        following.pop("goes_on")
        state = {**state, **following}
        step.begin(tf.constant(NO_TICKET, tf.int64), state)
        with tf.control_dependencies([step.finish_group()]):
            return {**state, "versions": tf.identity(state["versions"])}
