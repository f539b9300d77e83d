"""Who may start a step on a server: the thin shell around `clock`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import tensorflow as tf

from tfps.consistency.clock import Clocks, Decision, decide
from tfps.consistency.server_ledger import ServerLedger
from tfps.consistency.waiters import TensorVectors, Waiters


class Membership(Protocol):
    """What follows when workers come and go; under the server's mutex."""

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        """Trace what a worker's entry changes."""

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        """Trace what follows when somebody has left, of itself or not."""


class Memberships:
    """What follows in several places.

    Args:
        places: where.
    """

    def __init__(self, places: Sequence[Membership]) -> None:
        self._places = places

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        for place in self._places:
            place.enter(worker, accepted)

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        for place in self._places:
            place.leave(worker, leaves)


class Gate(Membership, Protocol):
    """When a server that applies gradients at once answers a worker's push."""

    def end_step(
        self, worker: tf.Tensor, *, counts: tf.Tensor, clock: tf.Tensor
    ) -> tf.Tensor | None:
        """Trace the end of a worker's step; answers whether it has to wait, None: never.

        Args:
            worker: its index.
            counts: whether the step does; one that was refused does not.
            clock: steps that the worker has completed with it, the same on all servers.
        """

    def wait(
        self, worker: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]
    ) -> Sequence[tf.Tensor]:
        """Trace waiting until the worker may go on; answers what is read then.

        Args:
            worker: its index.
            read: called under the mutex.
        """


class OpenGate:
    """Nobody waits."""

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        """Nothing follows."""

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        """Nothing follows."""

    def end_step(self, worker: tf.Tensor, *, counts: tf.Tensor, clock: tf.Tensor) -> None:
        """Nobody has to wait."""

    def wait(
        self, worker: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]
    ) -> Sequence[tf.Tensor]:
        return read()


class BoundedGate:
    """A worker waits while it is more than a bound of steps ahead of the slowest.

    Args:
        ledger: the server's ledger.
        bound_steps: how far ahead a worker may start.
    """

    def __init__(self, ledger: ServerLedger, *, bound_steps: int) -> None:
        self._ledger, self._bound_steps = ledger, bound_steps
        self._waiters, self._vectors = Waiters(ledger), TensorVectors()

    def enter(self, worker: tf.Tensor, accepted: tf.Tensor) -> None:
        is_new = self._ledger.one_hot(worker) * tf.cast(accepted, tf.int64)
        state = self._state().entered(is_new, vectors=self._vectors)
        self._decide(state, asking=tf.zeros_like(is_new))

    def leave(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        self._decide(self._state(), asking=tf.zeros([self._ledger.layout.workers], tf.int64))

    def end_step(self, worker: tf.Tensor, *, counts: tf.Tensor, clock: tf.Tensor) -> tf.Tensor:
        mask = self._ledger.one_hot(worker) * tf.cast(counts, tf.int64)
        state = self._state().ticked(mask, clock, vectors=self._vectors)
        return self._is_blocked(self._decide(state, asking=mask))

    def wait(
        self, worker: tf.Tensor, read: Callable[[], Sequence[tf.Tensor]]
    ) -> Sequence[tf.Tensor]:
        mask = self._ledger.one_hot(worker)

        def look_again(_: tf.Tensor) -> tuple[tf.Tensor]:
            token = self._waiters.take_token(worker)
            with tf.control_dependencies([token]), self._ledger.locked():
                decision = self._decide(self._state(), asking=mask)
            return (self._is_blocked(decision),)

        (end,) = tf.while_loop(lambda blocked: blocked, look_again, (tf.constant(True),))
        with tf.control_dependencies([end]), self._ledger.locked():
            return read()

    @staticmethod
    def _is_blocked(decision: Decision) -> tf.Tensor:
        return tf.reduce_any(decision.blocked == 1)

    def _state(self) -> Clocks:
        layout = self._ledger.layout
        return Clocks(*self._ledger.by_worker(layout.clock, layout.active, layout.waiting))

    def _decide(self, state: Clocks, *, asking: tf.Tensor) -> Decision:
        """Write what follows and wake those that may go on."""
        layout = self._ledger.layout
        decision = decide(
            state, asking=asking, bound_steps=self._bound_steps, vectors=self._vectors
        )
        after = decision.after
        self._ledger.write_by_worker({layout.clock: after.clocks, layout.waiting: after.waiting})
        self._ledger.raise_to(layout.LARGEST_GAP, decision.gap)
        self._waiters.wake(decision.released)
        return decision
