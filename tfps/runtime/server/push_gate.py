"""When a push is answered: at once, when the clock allows another step, or after its round."""

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
from tfps.runtime.server.admission import Arrival, PushVerdict
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall
from tfps.transport.message import Request

# What a reply brings, from the version that goes with it: the version, then the values.
Read = Callable[[tf.Tensor], Sequence[tf.Tensor]]


class PushGate(Protocol):
    """Who has to wait before a push is answered; all but `wait` runs under the server's mutex."""

    @property
    def may_wait(self) -> bool:
        """Whether anybody ever has to."""

    def prepare(self) -> Sequence[tf.Tensor]:
        """Trace what comes before a push is looked at; answers what has to be done then."""

    def arrive(self, arrival: Arrival) -> Arrival:
        """The push, with what the gate knows of where it stands among the others."""

    def end_step(
        self, arrival: Arrival, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Trace what follows when the push was taken.

        Returns:
            Whether its worker has to wait (None: never), and the version of what is read now.
        """

    def wait(self, arrival: Arrival, read: Read) -> list[tf.Tensor]:
        """Trace waiting; answers what is read then under the mutex."""


@dataclass(frozen=True)
class ClockGate:
    """A push ends a step of its worker's clock; a bound lets the fast wait for the slow."""

    gate: Gate
    ledger: ServerLedger

    @property
    def may_wait(self) -> bool:
        return not isinstance(self.gate, OpenGate)

    def prepare(self) -> Sequence[tf.Tensor]:
        return ()

    def arrive(self, arrival: Arrival) -> Arrival:
        return arrival

    def end_step(
        self, arrival: Arrival, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        header = arrival.header
        has_to_wait = self.gate.end_step(
            header[Request.WORKER], counts=arrival.alive, clock=header[Request.CLOCK] + 1
        )
        return has_to_wait, verdict.version

    def wait(self, arrival: Arrival, read: Read) -> list[tf.Tensor]:
        def read_again() -> Sequence[tf.Tensor]:
            return read(self.ledger.open().read(self.ledger.layout.VERSION))

        return list(self.gate.wait(arrival.header[Request.WORKER], read_again))


@dataclass(frozen=True)
class RoundBarrier:
    """A push is a contribution to a round; it is answered when the round is complete.

    The version that a worker hears of is the server's position when its parameters were read.
    """

    call: ServerOptimizerCall
    rounds: RoundGate
    contributions: Contributions
    call_id: int  # see `consistency.rounds`
    # A push says how many examples its gradients come from; else all weigh the same, as those
    # of a scheduled function, whose batches are its own matter.
    weighs_examples: bool

    @property
    def may_wait(self) -> bool:
        return True

    def prepare(self) -> Sequence[tf.Tensor]:
        return self.contributions.let_come_again(self.rounds.position())

    def arrive(self, arrival: Arrival) -> Arrival:
        header, position = arrival.header, arrival.header[Request.BASE_VERSION]
        end_of_round = self.call.is_last
        following = (position // MAX_CALLS + 1) * MAX_CALLS if end_of_round else position + 1
        # Who was late for a call has parameters of another one now, and is late for the next too.
        fits = position % MAX_CALLS == self.call.number
        made = Contribution(
            worker=header[Request.WORKER],
            incarnation=header[Request.INCARNATION],
            alive=arrival.alive,
            position=tf.where(fits, position, NOTHING),
            next_position=following,
            call_id=self.call_id,
        )
        in_time, state = self.rounds.accepts(made)
        return replace(
            arrival, in_time=in_time, position=state.position, contribution=(made, state)
        )

    def contribute(
        self, tensors: Mapping[str, Any], arrival: Arrival, verdict: PushVerdict
    ) -> tf.Tensor:
        """An `Application`: pushes add up, and the round applies their mean when it is complete."""
        one = tf.constant(1, tf.int64)
        return self.contributions.add(
            tensors,
            examples=arrival.header[Request.STEP_EXAMPLES] if self.weighs_examples else one,
            arrival=arrival,
            condition=verdict.fresh,
        )

    def end_step(
        self, arrival: Arrival, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        made, state = arrival.contribution
        with tf.control_dependencies([done]):
            has_to_wait = self.rounds.push(made, (arrival.in_time, state), apply=self._apply)
        return has_to_wait, self.rounds.position()

    def wait(self, arrival: Arrival, read: Read) -> list[tf.Tensor]:
        made, _ = arrival.contribution
        # In a loop TensorFlow cannot take apart the conditions around an update that XLA compiles.
        end = self.rounds.wait(made, apply=functools.partial(self._apply, compiled=False))
        with tf.control_dependencies([end]), self.call.server.ledger.locked():
            return list(read(self.rounds.position()))

    def _apply(self, completes: tf.Tensor, *, compiled: bool = True) -> tf.Tensor:
        """The update of a complete round, which counts as one."""
        done, applied = self.contributions.apply(completes, compiled=compiled)
        server_ledger = self.call.server.ledger
        if self.call.is_update:
            server_ledger.add(server_ledger.layout.VERSION, tf.cast(applied, tf.int64))
        if not self.weighs_examples:  # it may be that of a function, which somebody else waits for
            server_ledger.add(server_ledger.layout.OTHER_WRITES, tf.cast(applied, tf.int64))
        return done
