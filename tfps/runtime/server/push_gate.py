"""When a push is answered: at once, when the clock allows another step, or after its round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from tfps.consistency.gate import Gate
from tfps.consistency.ledger import MAX_CALLS, NOTHING
from tfps.consistency.round_gate import Contribution, RoundGate
from tfps.consistency.rounds import Rounds
from tfps.consistency.server_ledger import ServerLedger
from tfps.runtime.server.admission import PushVerdict
from tfps.runtime.server.contributions import Contributions
from tfps.transport.message import Request

Fields = Sequence[tf.Tensor]  # of a request's header
# What a reply brings, from the version that goes with it: the version, then the values.
Read = Callable[[tf.Tensor], list[tf.Tensor]]


@dataclass(frozen=True)
class Standing:
    """Where a push stands among the others; as `Arrival` says."""

    in_time: Any = True
    position: Any = None
    contribution: Contribution | None = None
    rounds: Rounds | None = None


class PushGate(Protocol):
    """Who has to wait before a push is answered."""

    def arrive(self, header: Fields, alive: Any) -> Standing:
        """Trace where a push stands, under the server's mutex."""

    def end_step(
        self, header: Fields, place: Standing, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Trace what follows, under the mutex.

        Args:
            header: of the push.
            place: of the push.
            verdict: on the push.
            done: when it was taken.

        Returns:
            Whether its worker has to wait (None: never), and the version of what is read now.
        """

    def wait(self, header: Fields, place: Standing, read: Read) -> list[tf.Tensor]:
        """Trace waiting, not under the mutex; answers what is read then under it."""


@dataclass(frozen=True)
class ClockGate:
    """A push ends a step of its worker's clock; a bound lets the fast wait for the slow.

    Args:
        gate: of the server.
        ledger: of the server.
    """

    gate: Gate
    ledger: ServerLedger

    def arrive(self, header: Fields, alive: Any) -> Standing:
        return Standing()

    def end_step(
        self, header: Fields, place: Standing, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        has_to_wait = self.gate.end_step(
            header[Request.WORKER], counts=verdict.alive, clock=header[Request.CLOCK] + 1
        )
        return has_to_wait, verdict.version

    def wait(self, header: Fields, place: Standing, read: Read) -> list[tf.Tensor]:
        def read_again() -> list[tf.Tensor]:
            return read(self.ledger.entries().read(self.ledger.layout.VERSION))

        return list(self.gate.wait(header[Request.WORKER], read_again))


@dataclass(frozen=True)
class RoundBarrier:
    """A push is a contribution to a round; it is answered when the round is complete.

    The version that a worker hears of is the server's position when its parameters were read.

    Args:
        rounds: of the server.
        contributions: to the rounds of one optimizer call.
        ledger: of the server.
        number: of the call in the step.
        is_last: whether the step ends with it.
        call_id: see `consistency.rounds`.
    """

    rounds: RoundGate
    contributions: Contributions
    ledger: ServerLedger
    number: int
    is_last: bool
    call_id: int = 1

    def arrive(self, header: Fields, alive: Any) -> Standing:
        position = header[Request.BASE_VERSION]
        following = (position // MAX_CALLS + 1) * MAX_CALLS if self.is_last else position + 1
        # Who was late for a call has parameters of another one now, and is late for the next too.
        fits = position % MAX_CALLS == self.number
        made = Contribution(
            worker=header[Request.WORKER],
            incarnation=header[Request.INCARNATION],
            alive=alive,
            position=tf.where(fits, position, NOTHING),
            next_position=following,
            call_id=self.call_id,
        )
        in_time, state = self.rounds.accepts(made)
        return Standing(in_time, state.position, made, state)

    def end_step(
        self, header: Fields, place: Standing, verdict: PushVerdict, *, done: tf.Tensor
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        assert place.contribution is not None
        assert place.rounds is not None
        found = place.in_time, place.rounds
        with tf.control_dependencies([done]):
            has_to_wait = self.rounds.push(place.contribution, found, apply=self._apply)
        return has_to_wait, self.rounds.position()

    def wait(self, header: Fields, place: Standing, read: Read) -> list[tf.Tensor]:
        assert place.contribution is not None
        # In a loop TensorFlow cannot take apart the conditions around an update that XLA compiles.
        apply = functools.partial(self._apply, compiled=False)
        end = self.rounds.wait(place.contribution, apply=apply)
        with tf.control_dependencies([end]), self.ledger.locked():
            return read(self.rounds.position())

    def _apply(self, completes: tf.Tensor, *, compiled: bool = True) -> tf.Tensor:
        """The update of a complete round, which counts as one."""
        done = self.contributions.apply(completes, compiled=compiled)
        if self.contributions.is_update:
            self.ledger.add(self.ledger.layout.VERSION, tf.cast(completes, tf.int64))
        return done
