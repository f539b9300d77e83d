"""Decides when to reply to a push: immediately, when the clock allows a step, or after a round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tensorflow as tf

from tfps.consistency.gate import Gate, OpenGate
from tfps.consistency.ledger import MAX_CALLS, NOTHING
from tfps.consistency.round_gate import Contribution, RoundGate
from tfps.consistency.server_ledger import ServerLedger
from tfps.runtime.server.admission import PushVerdict, ReceivedPush
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall
from tfps.runtime.server.update_counts import UpdateCounts
from tfps.transport.message import Request

# Reads the values for a reply of a version: the version, then the values.
Read = Callable[[tf.Tensor], Sequence[tf.Tensor]]


class PushGate(Protocol):
    """Decides whether a push waits for its reply; all but `wait` runs under the server's mutex."""

    @property
    def may_wait(self) -> bool:
        """Whether a push ever has to wait."""

    def prepare(self) -> Sequence[tf.Tensor]:
        """Trace the work before a decision about a push; return tensors to wait for."""

    def locate(self, arrival: ReceivedPush) -> ReceivedPush:
        """Return a push with its position in the server's rounds."""

    def end_step(
        self, arrival: ReceivedPush, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Trace the end of a step, after its push was decided.

        Returns:
            Whether its worker has to wait (None: never), and the version of the values read now.
        """

    def wait(self, arrival: ReceivedPush, read: Read) -> list[tf.Tensor]:
        """Trace waiting; return the result of ``read``, called after the wait under the mutex."""


@dataclass(frozen=True)
class ClockGate:
    """Ends a step of the worker's clock; with a bound, fast workers wait for slow ones."""

    gate: Gate
    ledger: ServerLedger

    @property
    def may_wait(self) -> bool:
        return not isinstance(self.gate, OpenGate)

    def prepare(self) -> Sequence[tf.Tensor]:
        return ()

    def locate(self, arrival: ReceivedPush) -> ReceivedPush:
        return arrival

    def end_step(
        self, arrival: ReceivedPush, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        header = arrival.header
        has_to_wait = self.gate.end_step(
            header[Request.WORKER], counts=arrival.alive, clock=header[Request.CLOCK] + 1
        )
        return has_to_wait, verdict.version

    def wait(self, arrival: ReceivedPush, read: Read) -> list[tf.Tensor]:
        def read_again() -> Sequence[tf.Tensor]:
            return read(self.ledger.open().read(self.ledger.layout.VERSION))

        return list(self.gate.wait(arrival.header[Request.WORKER], read_again))


@dataclass(frozen=True)
class RoundBarrier:
    """Adds a push to a round, and replies when the round is complete.

    A worker gets, as its version, the server's position when its parameters were read.
    """

    call: ServerOptimizerCall  # applies the mean
    rounds: RoundGate  # decides when a round is complete
    contributions: Contributions  # the sums of the round
    call_id: int  # see `consistency.rounds`
    # Whether a push has the number of its examples as weight. Pushes of scheduled functions, which
    # choose batches themselves, all weigh the same.
    weighs_examples: bool
    counts_reduced: bool = False  # whether workers update their copies after each round
    update_counts: UpdateCounts | None = None  # which a round sets to the workers' count

    @property
    def may_wait(self) -> bool:
        return True

    def prepare(self) -> Sequence[tf.Tensor]:
        return self.contributions.forget_dropped(self.rounds.position())

    def locate(self, arrival: ReceivedPush) -> ReceivedPush:
        header, position = arrival.header, arrival.header[Request.BASE_VERSION]
        end_of_round = self.call.is_last
        following = (position // MAX_CALLS + 1) * MAX_CALLS if end_of_round else position + 1
        # A worker that was late for a call now has parameters of another round, and is late for the
        # next call too.
        fits = position % MAX_CALLS == self.call.number
        contribution = Contribution(
            worker=header[Request.WORKER],
            incarnation=header[Request.INCARNATION],
            alive=arrival.alive,
            position=tf.where(fits, position, NOTHING),
            next_position=following,
            call_id=self.call_id,
        )
        in_time, state = self.rounds.accepts(contribution)
        return replace(
            arrival, in_time=in_time, position=state.position, contribution=(contribution, state)
        )

    def contribute(
        self, tensors: Mapping[str, Any], arrival: ReceivedPush, verdict: PushVerdict
    ) -> tf.Tensor:
        """Add a push to its round, which applies the mean when complete; see `Application`."""
        one = tf.constant(1, tf.int64)
        return self.contributions.add(
            tensors,
            examples=arrival.header[Request.STEP_EXAMPLES] if self.weighs_examples else one,
            arrival=arrival,
            condition=verdict.fresh,
        )

    def end_step(
        self, arrival: ReceivedPush, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        contribution, state = arrival.contribution
        with tf.control_dependencies([done]):
            has_to_wait = self.rounds.push(
                contribution,
                (arrival.in_time, state),
                apply=functools.partial(self._apply, arrival.header[Request.UPDATES]),
            )
        return has_to_wait, self.rounds.position()

    def wait(self, arrival: ReceivedPush, read: Read) -> list[tf.Tensor]:
        contribution, _ = arrival.contribution
        # Inside a loop TensorFlow cannot lower the conditions around an update that XLA compiles.
        updates = arrival.header[Request.UPDATES]
        apply = functools.partial(self._apply, updates, compiled=False)
        end = self.rounds.wait(contribution, apply=apply)
        with tf.control_dependencies([end]), self.call.server.ledger.locked():
            return list(read(self.rounds.position()))

    def _apply(
        self, updates: tf.Tensor, completes: tf.Tensor, *, compiled: bool = True
    ) -> tf.Tensor:
        """Apply the update of a complete round, which counts as one update."""
        if self.update_counts is not None:  # without that update, if there is one
            before = updates - tf.cast(self.contributions.has_any, tf.int64)
            self.update_counts.set(before, condition=completes)
        done, applied = self.contributions.apply(completes, compiled=compiled)
        server_ledger = self.call.server.ledger
        if self.call.counts_as_update:
            server_ledger.add(server_ledger.layout.VERSION, tf.cast(applied, tf.int64))
        if self.counts_reduced:
            server_ledger.add(server_ledger.layout.REDUCED, tf.cast(applied, tf.int64))
        if not self.weighs_examples:  # a function's, perhaps: other programs look for such writes
            server_ledger.add(server_ledger.layout.OTHER_WRITES, tf.cast(applied, tf.int64))
        return done
