"""Traces the training of `fit` that pushes one step while it computes the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.ledger import NO_TICKET
from tfps.runtime.message.payload import Body
from tfps.runtime.message.request_header import NO_FIELDS, NOT_MEASURED, Fields
from tfps.runtime.message.wire import CallWire, split_tensors
from tfps.runtime.program.examples import count_examples
from tfps.runtime.worker.closure_run import State
from tfps.runtime.worker.exchange import ServerReplies
from tfps.runtime.worker.fit_loop import FitLoop, make_next_fields
from tfps.runtime.worker.fit_step import FitStep
from tfps.transport.message import Request
from tfps.transport.packing import pack


class PipelinedStep(FitStep):
    """Traces steps that keep their pushes for the next turn of the loop.

    The gradient of step i + 1 is computed from parameters without the update of step i: a delay of
    exactly one, which counts as staleness. The same holds for rows of tables: a step looks them up
    before that update is sent.
    """

    bodies: Sequence[Sequence[tf.Tensor]]  # of the latest traced step, by server
    pending_fields: Fields = NO_FIELDS  # the durations of codecs, for the next push

    @property
    def codec_fields(self) -> Fields:
        """The durations of codecs, measured in the turn before the one that sends the push."""
        return self.pending_fields

    def exchange(self, call_number: int, tensors: Mapping[str, tf.Tensor]) -> None:
        encoded = [body.joined for body in self.encode(call_number, tensors).values()]
        self.bodies = [[each for each in body if each is not None] for body in encoded]

    def send_pending(self, state: State) -> ServerReplies:
        """Push the gradients that the previous step has kept, if there was one."""

        def send() -> ServerReplies:
            self.begin(state["pending_ticket"], {**state, "versions": state["pending_versions"]})
            self.pending_fields = state["pending_fields"]
            return self.send_push(0, {p: Body(*body) for p, body in enumerate(state["pending"])})

        def stay() -> ServerReplies:
            """Keep the parameters as they are."""
            values = split_tensors(self.program.variables, self.copies.read)
            return ServerReplies(
                payloads=[pack(server.wires[0].reply, values) for server in self.servers],
                versions=tf.unstack(state["versions"], num=len(self.servers)),
                accepted=tf.constant(True),
                other_writes=self.seen_writes,
                ids=tf.zeros([0], tf.int64),
                next_ticket=state["ahead"],
                next_batches=tf.constant(1, tf.int64),
                microseconds=tf.constant(NOT_MEASURED, tf.int64),
            )

        return tf.cond(state["pending_ticket"] >= 0, send, stay)

    def push_after_look_ups(self, replies: ServerReplies) -> None:
        """Let the push with these replies wait for the look-ups of the latest traced step."""
        for reply in self.look_ups.early_operations:
            private.add_control_input(replies.accepted.op.inputs[0].op, reply)


class PipelinedLoop(FitLoop[PipelinedStep]):
    """Hides the exchange behind the computation, for one step of staleness.

    A worker joins with two tickets. Each turn of the loop sends the push of the turn before, and
    computes the next gradient at the same time. When no ticket is left, the last push is sent
    alone. If its reply brings another ticket, which a lost worker has given back, the pipeline
    fills again.

    Source: Li et al., "Pipe-SGD: A Decentralized Pipelined SGD Framework", NeurIPS 2018.
    """

    def take_steps(self, step: PipelinedStep, state: State) -> State:
        closure_run = step.closure_run
        state |= {
            "pending": [_make_empty_body(server.wires[0]) for server in self.servers],
            "pending_ticket": tf.constant(NO_TICKET, tf.int64),
            "pending_versions": state["versions"],
            "pending_examples": tf.constant(0, tf.int64),
            "pending_fields": _make_initial_codec_fields(
                [server.wires[0] for server in self.servers]
            ),
            "ahead": step.ahead_ticket,
        }

        def turn(state: State) -> State:
            ticket, batch = state["ticket"], closure_run.batch(state)
            replies = step.send_pending(state)
            step.begin(ticket, state)
            report = step.run(batch)
            codec_fields = NO_FIELDS if step.coding is None else step.coding.codec_fields
            step.push_after_look_ups(replies)
            bodies = [list(body) for body in step.bodies]
            # Only now: the step was computed from the older parameters.
            with tf.control_dependencies([payload for payload, *_ in bodies]):
                values = [tf.identity(payload) for payload in replies.payloads]
                step.load(values, step.load_newer, call_number=0)
                step.refresh_unchanged(replies)
            return {
                **closure_run.fetch(replies.next_ticket),
                **_make_next_state(state, replies),
                "report": report,
                "steps": state["steps"] + 1,
                "pending": bodies,
                "pending_ticket": ticket,
                "pending_versions": state["versions"],
                "pending_examples": count_examples(batch),
                "pending_fields": codec_fields,
            }

        def drain_pipeline(state: State) -> State:
            state = closure_run.loop(turn, state)
            replies = step.send_pending(state)
            step.load(replies.payloads, step.load_newer, call_number=0)
            step.refresh_unchanged(replies)
            closure_run.take_finite_flag(state)
            # Also if the current ticket lies beyond the end of the data: the new one may be of a
            # lost worker, and there may be no other worker left to take it.
            return {
                **state,
                **closure_run.fetch(replies.next_ticket),
                **_make_next_state(state, replies),
                "pending_ticket": tf.constant(NO_TICKET, tf.int64),
            }

        return closure_run.loop(drain_pipeline, state)


def _make_empty_body(wire: CallWire) -> list[tf.Tensor]:
    """Make the empty body of the loop's first turn; with rows its length is unknown."""
    payload = tf.zeros([wire.request.size_bytes], tf.uint8)
    if not wire.tables:
        return [payload]
    ids = tf.zeros([0], tf.int64)
    return [tf.raw_ops.PlaceholderWithDefault(input=each, shape=[None]) for each in (payload, ids)]


def _make_initial_codec_fields(wires: Sequence[CallWire]) -> Fields:
    """Make the header fields of codec durations for the loop's first turn."""
    if not any(wire.coded for wire in wires):
        return NO_FIELDS
    return {Request.ENCODE_MICROSECONDS: tf.constant(NOT_MEASURED, tf.int64)}


def _make_next_state(state: State, replies: ServerReplies) -> State:
    """Make the part of the loop's state that the reply to the pending push changes."""
    ticket, examples = state["pending_ticket"], state["pending_examples"]
    return {
        "versions": tf.stack(replies.versions),
        "fields": make_next_fields(state, replies, ticket=ticket, examples=examples),
        "ahead": tf.constant(NO_TICKET, tf.int64),
    }
